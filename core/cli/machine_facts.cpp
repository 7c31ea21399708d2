#include "cli/machine_facts.h"

#include <fmt/format.h>
#include <glob.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <set>

#include "base/human.h"
#include "base/machine.h"
#include "cli/commands.h"

namespace turbo::cli {
namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
namespace {

constexpr size_t kMostEntries = 64;
constexpr size_t kMostFileBytes = 64 << 10;

fs::path under(const fs::path& root, const std::string& path) { return root / path.substr(1); }

std::string read_start(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return {};
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostFileBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(0, file.gcount())));
  return text;
}

std::string first_line(const fs::path& path) {
  const std::string text = read_start(path);
  return tidy(text.substr(0, text.find('\n')), 256);
}

// Value behind "key=" or "key " at the beginning of a line.
std::string value_of(const std::string& text, const std::string& key) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (text.compare(at, key.size(), key) == 0 && at + key.size() < end && (text[at + key.size()] == '=' || text[at + key.size()] == ' ')) {
      std::string value = text.substr(at + key.size() + 1, end - at - key.size() - 1);
      std::erase(value, '"');
      return tidy(value, 256);
    }
    at = end + 1;
  }
  return {};
}

std::vector<fs::path> listed(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end && paths.size() < 4096; at.increment(failed)) paths.push_back(at->path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string link_name(const fs::path& link) {
  std::error_code failed;
  const fs::path target = fs::read_symlink(link, failed);
  return failed ? std::string() : tidy(target.filename().string(), 128);
}

void set_if(Json& object, const char* key, const std::string& value) {
  if (!value.empty()) object[key] = value;
}

std::string group_name(gid_t id) {
  const group* entry = ::getgrgid(id);
  return entry && entry->gr_name ? tidy(entry->gr_name, 64) : std::to_string(id);
}

Json node_json(const fs::path& path, const std::string& shown) {
  Json node{{"path", shown}};
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0) {
    node["state"] = "not there";
    return node;
  }
  node["mode"] = fmt::format("{:04o}", static_cast<unsigned>(about.st_mode & 07777));
  node["owner"] = about.st_uid == 0 ? "root" : "not root";
  node["group"] = group_name(about.st_gid);
  node["usable"] = ::access(path.c_str(), R_OK | W_OK) == 0;
  return node;
}

bool in_group(const char* name) {
  const group* entry = ::getgrnam(name);
  if (!entry) return false;
  const gid_t wanted = entry->gr_gid;
  std::vector<gid_t> groups(static_cast<size_t>(std::max(0, ::getgroups(0, nullptr))));
  if (!groups.empty() && ::getgroups(static_cast<int>(groups.size()), groups.data()) < 0) return false;
  return ::getegid() == wanted || std::find(groups.begin(), groups.end(), wanted) != groups.end();
}

// Folders that hold libraries, each once, in the loader's order.
std::vector<std::string> library_folders(const fs::path& root) {
  std::vector<std::string> folders;
  const auto add = [&](std::string folder) {
    while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
    if (folder.starts_with('/') && folders.size() < kMostEntries && std::find(folders.begin(), folders.end(), folder) == folders.end())
      folders.push_back(std::move(folder));
  };
  const char* path = std::getenv("LD_LIBRARY_PATH");
  for (std::string rest = path ? path : ""; !rest.empty();) {
    const size_t colon = std::min(rest.find(':'), rest.size());
    add(rest.substr(0, colon));
    rest.erase(0, colon + 1);
  }
  for (const fs::path& file : listed(under(root, "/etc/ld.so.conf.d"))) {
    const std::string text = read_start(file);
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      add(text.substr(at, end - at));
      at = end + 1;
    }
  }
  for (const char* folder : {"/usr/local/lib", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
                             "/usr/lib64", "/usr/lib", "/lib64", "/lib"})
    add(folder);
  for (const fs::path& rocm : listed(under(root, "/opt")))
    if (rocm.filename().string().starts_with("rocm"))
      for (const char* below : {"lib", "lib64", "hip/lib"}) add("/opt/" + rocm.filename().string() + "/" + below);
  return folders;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-'; }

bool holds(std::string text, std::initializer_list<const char*> words) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  for (const char* word : words)
    if (text.find(word) != std::string::npos) return true;
  return false;
}

// Settings of turbo whose values are nobody's text. Others are named only.
bool is_plain_setting(const std::string& name, const std::string& value) {
  if (holds(name, {"KEY", "SECRET", "PASS", "CREDENTIAL", "AUTH", "PROMPT", "SYSTEM"})) return false;
  if (holds(value, {"KEY", "SECRET", "PASSW", "://"})) return false;
  if (name.starts_with("TURBO_FIBER_")) return true;
  for (const char* known : {"TURBO_PLUGIN_PATH", "TURBO_CONFIG_PATH", "TURBO_CPU_ISA", "TURBO_HIP_SYNC"})
    if (name == known) return true;
  for (const profile::Flag& flag : profile::flag_table())
    if (name == profile::environment_name(flag.name)) return true;
  return false;
}

}  // namespace

std::string tidy(std::string text, size_t most) {
  if (text.size() > most) {
    size_t end = most;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // no half of a character
    text.resize(end);
    text += "...";
  }
  for (char& c : text)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f) c = ' ';
  while (!text.empty() && (text.back() == ' ' || text.back() == '\n')) text.pop_back();
  return text;
}

Json system_facts(const fs::path& root) {
  Json facts;
  const std::string release = read_start(under(root, "/etc/os-release"));
  facts["os"] = value_of(release, "PRETTY_NAME").empty() ? "unknown" : value_of(release, "PRETTY_NAME");
  utsname names{};
  if (::uname(&names) == 0) {
    facts["kernel"] = tidy(names.release, 128);  // not the node's name
    facts["machine"] = tidy(names.machine, 64);
  }
  std::error_code ignored;
  facts["container"] = fs::exists(under(root, "/.dockerenv"), ignored) || fs::exists(under(root, "/run/.containerenv"), ignored);
  return facts;
}

Json processor_facts() {
  Json facts;
  const std::string text = read_start("/proc/cpuinfo");
  const auto row = [&](const char* key) {
    const size_t at = text.find(std::string(key) + "\t");
    const size_t colon = at == std::string::npos ? at : text.find(':', at);
    return colon == std::string::npos ? std::string("unknown") : tidy(text.substr(colon + 2, text.find('\n', colon) - colon - 2), 4096);
  };
  facts["name"] = row("model name");
  facts["usable"] = usable_cpus();
  std::string isa;
  const std::string flags = " " + row("flags") + " ";
  for (const char* flag : {"avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_vbmi", "avx512_bf16"})
    if (flags.find(" " + std::string(flag) + " ") != std::string::npos) isa += std::string(isa.empty() ? "" : " ") + flag;
  facts["isa"] = isa.empty() ? "baseline" : isa;
  facts["memory_total"] = human_bytes(total_memory_bytes());
  facts["memory_available"] = human_bytes(available_memory_bytes());
  return facts;
}

Json display_facts(const fs::path& root) {
  Json displays = Json::array();
  for (const fs::path& device : listed(under(root, "/sys/bus/pci/devices"))) {
    const std::string kind = first_line(device / "class");
    const bool accelerator = kind.starts_with("0x12") || kind.starts_with("0x0b40");
    if ((!kind.starts_with("0x03") && !accelerator) || displays.size() >= kMostEntries) continue;
    Json row{{"slot", tidy(device.filename().string(), 32)}, {"class", kind}, {"vendor", first_line(device / "vendor")},
             {"device", first_line(device / "device")}};
    set_if(row, "subsystem_vendor", first_line(device / "subsystem_vendor"));
    set_if(row, "subsystem_device", first_line(device / "subsystem_device"));
    set_if(row, "revision", first_line(device / "revision"));
    row["driver"] = link_name(device / "driver").empty() ? "none" : link_name(device / "driver");
    set_if(row, "link_speed", first_line(device / "current_link_speed"));
    set_if(row, "link_width", first_line(device / "current_link_width"));
    set_if(row, "boot_display", first_line(device / "boot_vga"));
    const std::string video = first_line(device / "mem_info_vram_total"), used = first_line(device / "mem_info_vram_used");
    if (!video.empty()) row["video_memory"] = human_bytes(std::strtoull(video.c_str(), nullptr, 10));
    if (!used.empty()) row["video_memory_used"] = human_bytes(std::strtoull(used.c_str(), nullptr, 10));
    displays.push_back(std::move(row));
  }
  return displays;
}

Json driver_facts(const fs::path& root) {
  std::error_code ignored;
  const fs::path module = under(root, "/sys/module/amdgpu");
  Json facts{{"amdgpu", fs::exists(module, ignored) ? "loaded" : "not loaded"}};
  set_if(facts, "amdgpu_version", first_line(module / "version"));
  Json gpus = Json::array();
  for (const fs::path& node : listed(under(root, "/sys/class/kfd/kfd/topology/nodes"))) {
    const std::string text = read_start(node / "properties"), version = value_of(text, "gfx_target_version");
    const unsigned long number = std::strtoul(version.c_str(), nullptr, 10);
    if (number == 0 || gpus.size() >= kMostEntries) continue;  // the host's own node
    gpus.push_back({{"node", tidy(node.filename().string(), 16)},
                    {"gfx_target_version", version},
                    {"gfx", fmt::format("gfx{}{:x}{:x}", number / 10000, number / 100 % 100, number % 100)},
                    {"simds", value_of(text, "simd_count")},
                    {"vendor_id", value_of(text, "vendor_id")},
                    {"device_id", value_of(text, "device_id")}});
  }
  facts["compute_nodes"] = std::move(gpus);
  return facts;
}

Json node_facts(const fs::path& root) {
  Json nodes = Json::array();
  nodes.push_back(node_json(under(root, "/dev/kfd"), "/dev/kfd"));
  for (const fs::path& node : listed(under(root, "/dev/dri")))
    if (node.filename().string().starts_with("renderD") && nodes.size() < kMostEntries)
      nodes.push_back(node_json(node, "/dev/dri/" + tidy(node.filename().string(), 32)));
  return {{"nodes", std::move(nodes)}, {"in_group_render", in_group("render")}, {"in_group_video", in_group("video")}, {"is_root", ::geteuid() == 0}};
}

Json runtime_facts(const fs::path& root) {
  Json libraries = Json::array(), rocm = Json::array();
  std::set<fs::path> seen;
  std::error_code failed;
  for (const std::string& folder : library_folders(root))
    for (const fs::path& file : listed(under(root, folder))) {
      if (!file.filename().string().starts_with("libamdhip64.so") || libraries.size() >= kMostEntries) continue;
      const fs::path real = fs::canonical(file, failed);
      if (!seen.insert(failed ? file : real.parent_path() / file.filename()).second) continue;  // /lib and /usr/lib may be one
      libraries.push_back({{"file", tidy(folder + "/" + file.filename().string(), 512)},
                           {"is", failed ? std::string("a link to nothing") : tidy(real.filename().string(), 256)}});
    }
  for (const fs::path& prefix : listed(under(root, "/opt")))
    if (prefix.filename().string().starts_with("rocm") && rocm.size() < kMostEntries) {
      const std::string version = first_line(prefix / ".info/version");
      rocm.push_back(tidy("/opt/" + prefix.filename().string(), 256) + (version.empty() ? "" : ": " + version));
    }
  return {{"libamdhip64", std::move(libraries)}, {"rocm", std::move(rocm)}};
}

Json variable_facts(const std::vector<std::string>& environment) {
  std::vector<std::string> entries = environment;
  std::sort(entries.begin(), entries.end());
  Json facts = Json::object();
  for (const std::string& entry : entries) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos || facts.size() >= kMostEntries) continue;
    const std::string name = entry.substr(0, equals), value = entry.substr(equals + 1);
    bool shown = false, ours = name.starts_with("TURBO_");
    for (const char* prefix : {"HSA_", "HIP_", "ROCR_", "ROCM_", "GPU_", "AMD_"}) shown |= name.starts_with(prefix);
    if (!shown && !ours) continue;
    if (ours) shown = is_plain_setting(name, value);
    else shown = !holds(name, {"KEY", "SECRET", "PASS", "TOKEN", "CREDENTIAL"});
    facts[tidy(name, 64)] = shown ? tidy(value, 512) : "(set, not shown)";
  }
  return facts;
}

Scrubber Scrubber::of_this_process() {
  Scrubber scrubber;
  // The root user's home is named like the root user everywhere.
  const passwd* user = ::getpwuid(::getuid());
  std::vector<std::string> homes, users;
  if (user && user->pw_dir) homes.emplace_back(user->pw_dir);
  if (user && user->pw_name) users.emplace_back(user->pw_name);
  for (const char* name : {"HOME"})
    if (const char* value = std::getenv(name)) homes.emplace_back(value);
  for (const char* name : {"USER", "LOGNAME", "SUDO_USER"})
    if (const char* value = std::getenv(name)) users.emplace_back(value);
  for (std::string& home : homes) {
    while (home.size() > 1 && home.back() == '/') home.pop_back();
    if (home.size() > 1) scrubber.replace(home, "~");
  }
  for (const std::string& name : users)
    if (name != "root") scrubber.replace(name, "USER");
  char host[256] = {};
  if (::gethostname(host, sizeof host - 1) == 0) {
    const std::string whole = host;
    scrubber.replace(whole, "HOST");
    scrubber.replace(whole.substr(0, whole.find('.')), "HOST");
  }
  return scrubber;
}

void Scrubber::replace(const std::string& from, const std::string& to) {
  if (!from.empty() && from != to) words_.emplace_back(from, to);
}

std::string Scrubber::text(std::string text) const {
  for (const auto& [from, to] : words_)
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;) {
      const size_t end = at + from.size();
      const bool whole = (at == 0 || !is_word(text[at - 1]) || !is_word(from.front())) && (end == text.size() || !is_word(text[end]));
      if (whole) text.replace(at, from.size(), to);
      at += whole ? to.size() : 1;
    }
  return text;
}

Json Scrubber::json(const Json& value) const {
  if (value.is_string()) return text(value.get<std::string>());
  Json copy = value;
  if (value.is_array())
    for (Json& element : copy) element = json(element);
  if (value.is_object()) {
    copy = Json::object();
    for (const auto& [key, element] : value.items()) copy[text(key)] = json(element);
  }
  return copy;
}

}  // namespace turbo::cli
