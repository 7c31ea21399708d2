// One request run to its end from a command: streamed to a callback, cancellable. Calling thread waits.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

#include "engine/engine.h"
#include "engine/text_stream.h"

namespace turbo::cli {

struct Generated {
  std::string text;
  std::vector<int32_t> ids;
  engine::Finish finish;
  bool stop_string = false;  // ended by a stop string rather than a token
};

class Generation {
 public:
  using OnText = std::function<void(const std::string&)>;

  /// `tokenizer` null: no text, ids only.
  Generation(engine::Engine& engine, const text::Tokenizer* tokenizer, std::vector<std::string> stops)
      : engine_(engine), tokenizer_(tokenizer), stops_(std::move(stops)) {}

  /// Runs the request; on_text hears text as it becomes certain, on the calling thread.
  Result<Generated> run(engine::Request request, const OnText& on_text);
  /// [any thread] End what runs.
  void cancel();

 private:
  struct Inbox;
  engine::Engine& engine_;
  const text::Tokenizer* tokenizer_;
  std::vector<std::string> stops_;
  std::mutex mutex_;
  engine::RequestId running_ = 0;
  bool cancelled_ = false;
};

/// Which generation a signal ends. Safe between the signal's thread and the one that generates.
class CurrentGeneration {
 public:
  void set(Generation* generation) {
    std::lock_guard lock(mutex_);
    generation_ = generation;
  }
  /// False when nothing runs.
  bool cancel() {
    std::lock_guard lock(mutex_);
    if (generation_) generation_->cancel();
    return generation_ != nullptr;
  }

 private:
  std::mutex mutex_;
  Generation* generation_ = nullptr;
};

}  // namespace turbo::cli
