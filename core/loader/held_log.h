// Words of components that are only being tried: held until it is known who goes on. Any thread.
#pragma once

#include <spdlog/logger.h>

#include <memory>
#include <string>
#include <vector>

namespace turbo::loader {

class HeldLog {
 public:
  /// `target` null: spdlog's default logger.
  explicit HeldLog(std::shared_ptr<spdlog::logger> target);
  ~HeldLog();
  HeldLog(const HeldLog&) = delete;
  HeldLog& operator=(const HeldLog&) = delete;

  /// What the components get. It stays good when this object is gone.
  std::shared_ptr<spdlog::logger> logger() const { return logger_; }
  /// What was held goes to the target, and so does all that comes later.
  void pass_on();
  /// Warnings and errors that are held.
  std::vector<std::string> warnings() const;

 private:
  class Sink;
  std::shared_ptr<Sink> sink_;
  std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace turbo::loader
