// What a report tells about the machine: read from files, opening no device and no library. Text is bounded and printable.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace turbo::cli {

/// `root` stands before each absolute path; tests give a folder.
nlohmann::ordered_json system_facts(const std::filesystem::path& root = "/");
nlohmann::ordered_json processor_facts();
/// Display and accelerator devices of the PCI bus: ids, driver, link, video memory.
nlohmann::ordered_json display_facts(const std::filesystem::path& root = "/");
/// The amdgpu driver, and the GPUs that its compute interface tells of.
nlohmann::ordered_json driver_facts(const std::filesystem::path& root = "/");
/// /dev/kfd and render nodes: mode, group, and whether this process may use them; then its groups that count.
nlohmann::ordered_json node_facts(const std::filesystem::path& root = "/");
/// libamdhip64 files where the loader and ROCm's packages have them, and ROCm's own versions.
nlohmann::ordered_json runtime_facts(const std::filesystem::path& root = "/");

/// Variables that steer turbo and the HIP runtime. What may be secret or somebody's text is only said to be set.
nlohmann::ordered_json variable_facts(const std::vector<std::string>& environment);

/// Printable ASCII and UTF-8 text of at most `most` bytes: control characters become spaces.
std::string tidy(std::string text, size_t most = 4096);

/// Replaces what names a person or a machine, in strings of any depth, keys too.
class Scrubber {
 public:
  /// Of this process: home folder, user and host.
  static Scrubber of_this_process();
  /// Where `from` stands as a word of its own.
  void replace(const std::string& from, const std::string& to);
  std::string text(std::string text) const;
  nlohmann::ordered_json json(const nlohmann::ordered_json& value) const;

 private:
  std::vector<std::pair<std::string, std::string>> words_;
};

}  // namespace turbo::cli
