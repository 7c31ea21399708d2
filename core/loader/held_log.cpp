#include "loader/held_log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <mutex>

namespace turbo::loader {

class HeldLog::Sink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit Sink(std::shared_ptr<spdlog::logger> target) : target_(std::move(target)) {}

  void pass_on() {
    const std::lock_guard lock(mutex_);
    passes_ = true;
    for (const Held& held : held_) target().log(held.time, spdlog::source_loc{}, held.level, held.text);
    held_.clear();
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    forgets_ = !passes_;
    held_.clear();
  }
  std::vector<std::string> warnings() {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> texts;
    for (const Held& held : held_)
      if (held.level >= spdlog::level::warn) texts.push_back(held.text);
    return texts;
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (forgets_ || !target().should_log(message.level)) return;
    if (passes_) return target().log(message.time, spdlog::source_loc{}, message.level, message.payload);
    if (held_.size() < kMost) held_.push_back({message.time, message.level, std::string(message.payload.data(), message.payload.size())});
  }
  void flush_() override {}

 private:
  static constexpr size_t kMost = 1000;
  struct Held {
    spdlog::log_clock::time_point time;
    spdlog::level::level_enum level;
    std::string text;
  };
  spdlog::logger& target() const { return target_ ? *target_ : *spdlog::default_logger_raw(); }

  const std::shared_ptr<spdlog::logger> target_;
  std::vector<Held> held_;
  bool passes_ = false, forgets_ = false;
};

HeldLog::HeldLog(std::shared_ptr<spdlog::logger> target)
    : sink_(std::make_shared<Sink>(std::move(target))), logger_(std::make_shared<spdlog::logger>("held", sink_)) {
  logger_->set_level(spdlog::level::trace);  // the target's level decides
}
HeldLog::~HeldLog() { sink_->forget(); }
void HeldLog::pass_on() { sink_->pass_on(); }
std::vector<std::string> HeldLog::warnings() const { return sink_->warnings(); }

}  // namespace turbo::loader
