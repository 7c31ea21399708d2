// A plugin installation in a temporary folder, a captured log, scoped environment variables.
#pragma once

#include <gtest/gtest.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "loader/catalog.h"

namespace turbo::loader {

class ScopedEnv {
 public:
  ScopedEnv(std::string name, const std::string& value) : name_(std::move(name)) {
    const char* before = std::getenv(name_.c_str());
    had_ = before != nullptr;
    if (had_) before_ = before;
    ::setenv(name_.c_str(), value.c_str(), 1);
  }
  ~ScopedEnv() {
    if (had_)
      ::setenv(name_.c_str(), before_.c_str(), 1);
    else
      ::unsetenv(name_.c_str());
  }
  ScopedEnv(const ScopedEnv&) = delete;

 private:
  std::string name_, before_;
  bool had_ = false;
};

inline void write_file(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "turbo-loader-XXXXXX").string();
    path_ = std::filesystem::canonical(::mkdtemp(name.data()));
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Manifest of a stack fixture.
inline std::string stack_manifest(const std::string& id, const std::string& tier, const std::string& library,
                                  const std::string& more = "") {
  const auto line = [&](const char* kind, const char* name, const char* types = "") {
    return fmt::format("      - {{ kind: {}, name: {}, tier: {}{} }}\n", kind, name, tier, types);
  };
  return "schema: 1\nid: " + id + "\nname: Stack\nversion: 1.2.3\nabi: { major: 1, minor: 0 }\nlicense: Apache-2.0\n" +
         more + "libraries:\n  - path: " + library + "\n    components:\n" + line("arch_pack", "pack") +
         line("weight_format", "q1", ", types: [41]") + line("weight_format", "basic", ", types: [0, 1]") +
         line("kv_codec", "f16") + line("kv_codec", "q8") + line("sampler", "standard") + line("drafter", "phantom");
}

inline std::string fault_manifest(const std::string& library = "fault.so", const std::string& more = "") {
  return "schema: 1\nid: test.fault\nname: Faulty\nversion: 1.0.0\nabi: { major: 1, minor: 0 }\nlicense: "
         "Apache-2.0\nlibraries:\n  - path: " +
         library + "\n" + more + "    components:\n      - { kind: sampler, name: faulty, tier: cpu }\n";
}

/// A folder of plugins, with the fixtures copied in as wanted.
class Installation {
 public:
  std::filesystem::path plugins() const { return folder_.path() / "plugins"; }
  std::filesystem::path cache() const { return folder_.path() / "cache"; }
  const std::filesystem::path& root() const { return folder_.path(); }

  Installation() { std::filesystem::create_directories(plugins()); }

  std::filesystem::path add(const std::string& folder, const std::string& library, const std::string& manifest) const {
    const std::filesystem::path to = plugins() / folder;
    std::filesystem::create_directories(to);
    std::filesystem::copy_file(std::filesystem::path(TURBO_FIXTURES) / library, to / library);
    write_file(to / "plugin.yaml", manifest);
    return to;
  }
  std::filesystem::path add_stack(const std::string& name, const std::string& id, const std::string& tier) const {
    return add(name, name + ".so", stack_manifest(id, tier, name + ".so"));
  }
  void add_cpu() const { add_stack("stack_cpu", "test.cpu", "cpu"); }
  void add_all_tiers() const {
    add_cpu();
    add_stack("stack_generic", "test.generic", "generic");
    add_stack("stack_hip", "test.hip", "hip");
  }

  CatalogSettings settings() const {
    CatalogSettings settings;
    settings.install_folder = plugins();
    settings.probe.cache_folder = cache();
    settings.probe.step_limit = std::chrono::milliseconds(5000);
    return settings;
  }
  Catalog scan() const { return *Catalog::scan(settings()); }

 private:
  TempFolder folder_;
};

/// A logger that keeps its lines.
class CapturedLog {
 public:
  CapturedLog() : sink_(std::make_shared<Sink>()), logger_(std::make_shared<spdlog::logger>("test", sink_)) {
    logger_->set_level(spdlog::level::trace);
  }
  std::shared_ptr<spdlog::logger> logger() const { return logger_; }
  std::vector<std::string> lines() const { return sink_->lines(); }
  std::string text() const {
    std::string all;
    for (const std::string& line : lines()) all += line + "\n";
    return all;
  }
  /// Position of the first line that contains `part`, or -1.
  int find(const std::string& part) const {
    const auto all = lines();
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i].find(part) != std::string::npos) return static_cast<int>(i);
    return -1;
  }
  int count(const std::string& part) const {
    int n = 0;
    for (const std::string& line : lines()) n += line.find(part) != std::string::npos;
    return n;
  }

 private:
  class Sink : public spdlog::sinks::base_sink<std::mutex> {
   public:
    std::vector<std::string> lines() {
      const std::lock_guard lock(mutex_);
      return lines_;
    }

   protected:
    void sink_it_(const spdlog::details::log_msg& message) override {
      lines_.emplace_back(message.payload.begin(), message.payload.end());
    }
    void flush_() override {}

   private:
    std::vector<std::string> lines_;
  };
  std::shared_ptr<Sink> sink_;
  std::shared_ptr<spdlog::logger> logger_;
};

inline testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << text << "' does not contain '" << part << "'";
}

}  // namespace turbo::loader
