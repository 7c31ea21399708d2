// One request run to its end from a command: streamed to a callback, cancellable. Calling thread waits.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

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
  enum class Stage { preparing, running, finished };
  /// [any thread] End what runs, or keep it from starting. Gives the stage it had come to.
  Stage cancel();

 private:
  struct Inbox;
  engine::Engine& engine_;
  const text::Tokenizer* tokenizer_;
  std::vector<std::string> stops_;
  std::mutex mutex_;
  engine::RequestId running_ = 0;
  bool cancelled_ = false;
  Stage stage_ = Stage::preparing;
};

/// Which generation a signal ends. Safe between the signal's thread and the one that generates.
class CurrentGeneration {
 public:
  void set(std::shared_ptr<Generation> generation) {
    std::lock_guard lock(mutex_);
    generation_ = std::move(generation);
  }
  /// Empty when there is none.
  std::optional<Generation::Stage> cancel() {
    std::lock_guard lock(mutex_);
    return generation_ ? std::optional(generation_->cancel()) : std::nullopt;
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<Generation> generation_;
};

/// What signals have asked for, between their thread and the command's.
struct Interruption {
  CurrentGeneration current;
  std::atomic<bool> asked{false};    // end the answer
  std::atomic<bool> leaving{false};  // and then the program
};

}  // namespace turbo::cli
