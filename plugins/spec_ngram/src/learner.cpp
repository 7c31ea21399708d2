#include "learner.h"

#include <turbo/draft/idle_cpus.hpp>

namespace turbo::spec_ngram {
namespace {

// Tokens per turn of the writer: a fraction of a millisecond.
constexpr size_t kSlice = 128;

}  // namespace

Learner::Learner(draft::NgramCorpus& corpus, const Host& host, Extend extend)
    : corpus_(corpus), host_(host), extend_(std::move(extend)) {}

void Learner::start() {
  if (draft::idle_cpus(host_) == 0) return;
  const auto* threads = host_.service<turbo_host_threads>(TURBO_HOST_THREADS);
  worker_running_ = true;
  turbo_error error{};
  error.struct_size = sizeof error;
  if (threads->spawn(threads->ctx, "ngram-learn", &run, this, &error) == TURBO_OK) return;
  worker_running_ = false;
  host_.log(TURBO_LOG_WARN, std::string("no worker, long prompts are learnt step by step: ") + error.message);
}

void Learner::stop() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  queue_.clear();
  queued_tokens_ = 0;
  changed_.notify_all();
  changed_.wait(lock, [&] { return !worker_running_; });
}

bool Learner::now(std::span<const int32_t> context, std::span<const int32_t> fresh) {
  const std::unique_lock writing(writer_, std::try_to_lock);
  if (!writing) return false;
  extend(context, fresh);
  return true;
}

bool Learner::later(std::vector<int32_t> tokens, size_t n_context) {
  if (!worker_running_) return false;
  const std::lock_guard lock(mutex_);
  if (stopping_ || queue_.size() >= kQueuedTexts || queued_tokens_ + tokens.size() > kQueuedTokens) return false;
  queued_tokens_ += tokens.size();
  queue_.push_back({std::move(tokens), n_context, era_});
  changed_.notify_all();
  return true;
}

void Learner::reset() {
  {
    const std::lock_guard lock(mutex_);
    ++era_;
    queue_.clear();
    queued_tokens_ = 0;
  }
  const std::lock_guard writing(writer_);
  corpus_.reset();
}

void Learner::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !worker_running_ || (queue_.empty() && !working_); });
}

void Learner::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (stopping_) break;
    const Text text = std::move(queue_.front());
    queue_.pop_front();
    queued_tokens_ -= text.tokens.size();
    working_ = true;
    lock.unlock();
    learn(text);
    lock.lock();
    working_ = false;
    changed_.notify_all();
  }
  worker_running_ = false;
  changed_.notify_all();
}

void Learner::learn(const Text& text) {
  const std::span<const int32_t> tokens(text.tokens);
  for (size_t at = text.n_context; at < tokens.size(); at += kSlice) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    const std::lock_guard writing(writer_);
    if (text.era != era_) return;
    extend(tokens.first(at), tokens.subspan(at, std::min(kSlice, tokens.size() - at)));
  }
}

// What fails costs the drafts it would have given, no more.
void Learner::extend(std::span<const int32_t> context, std::span<const int32_t> fresh) {
  try {
    if (extend_)
      extend_(context, fresh);
    else
      corpus_.extend(context, fresh);
  } catch (const std::exception& exception) {
    failed(exception.what());
  }
}

void Learner::failed(const char* why) {
  host_.counter_add("ngram_learn_failures");
  const uint64_t n = ++failures_;
  if (n == 1)
    host_.log(TURBO_LOG_WARN, std::string("tokens were not learnt: ") + why + "; more of this is only counted");
}

}  // namespace turbo::spec_ngram
