#include "cli/generation.h"

#include <optional>

namespace turbo::cli {

// Engine thread in, calling thread out.
struct Generation::Inbox : engine::Listener {
  void on_tokens(std::span<const engine::Token> tokens) override {
    std::lock_guard lock(mutex);
    for (const engine::Token& token : tokens) ids.push_back(token.id);
    changed.notify_one();
  }
  void on_finish(const engine::Finish& end) override {
    std::lock_guard lock(mutex);
    finish = end;
    changed.notify_one();
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int32_t> ids;
  std::optional<engine::Finish> finish;
};

Result<Generated> Generation::run(engine::Request request, const OnText& on_text) {
  auto inbox = std::make_shared<Inbox>();
  {
    std::lock_guard lock(mutex_);
    if (cancelled_) return Status(Code::cancelled, "interrupted");
    TURBO_ASSIGN(running_, engine_.submit(std::move(request), inbox));
    stage_ = Stage::running;
  }
  Generated result;
  std::optional<engine::TextStream> stream;
  if (tokenizer_) stream.emplace(*tokenizer_, stops_);
  const auto say = [&](const std::string& text) {
    result.text += text;
    if (on_text && !text.empty()) on_text(text);
  };
  std::vector<int32_t> fresh;
  for (bool ended = false; !ended;) {
    {
      std::unique_lock lock(inbox->mutex);
      inbox->changed.wait(lock, [&] { return !inbox->ids.empty() || inbox->finish; });
      fresh.clear();
      fresh.swap(inbox->ids);
      ended = inbox->finish.has_value();
    }
    for (const int32_t id : fresh) {
      if (result.stop_string) break;
      result.ids.push_back(id);
      if (!stream) continue;
      say(stream->push(id));
      if (stream->stopped()) {
        result.stop_string = true;
        engine_.finish(running_);
      }
    }
  }
  if (stream) say(stream->finish());
  std::lock_guard lock(mutex_);
  running_ = 0;
  stage_ = Stage::finished;
  result.finish = *inbox->finish;
  if (result.stop_string) {
    result.finish.reason = engine::FinishReason::stop;
    result.finish.usage.completion_tokens = static_cast<uint32_t>(result.ids.size());
  }
  return result;
}

Generation::Stage Generation::cancel() {
  std::lock_guard lock(mutex_);
  cancelled_ = true;
  if (running_) engine_.cancel(running_);
  return stage_;
}

}  // namespace turbo::cli
