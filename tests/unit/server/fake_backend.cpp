#include "fake_backend.h"

#include <algorithm>

#include "text/utf8.h"

namespace turbo::server::testing {
namespace {

// The printable spelling of bytes that byte-level vocabularies use.
std::string spelling(int byte) {
  const auto printable = [](int b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
  char32_t code = static_cast<char32_t>(byte);
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  std::string out;
  text::append_utf8(out, code);
  return out;
}

constexpr const char* kTemplate =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if tools %}tools: {{ tools | length }}\n{% endif %}{# <think> #}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if open_think %}<think>\n{% endif %}{% endif %}";

}  // namespace

std::vector<int32_t> bytes_of(std::string_view text) {
  std::vector<int32_t> ids;
  for (const unsigned char c : text) ids.push_back(c);
  return ids;
}

FakeBackend::FakeBackend() {
  text::TokenizerData data;
  data.pre = "qwen2";
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.push_back(spelling(byte));
    data.types.push_back(1);
  }
  for (const char* special : {"<|im_start|>", "<|im_end|>"}) {
    data.tokens.emplace_back(special);
    data.types.push_back(3);
  }
  for (const char* word : {"<think>", "</think>"}) {
    data.tokens.emplace_back(word);
    data.types.push_back(4);
  }
  data.eos = kEnd;
  auto tokenizer = text::Tokenizer::create(std::move(data));
  if (!tokenizer) throw std::runtime_error(tokenizer.status().message());
  tokenizer_ = *tokenizer;
  auto parsed = text::ChatTemplate::parse(kTemplate);
  if (!parsed) throw std::runtime_error(parsed.status().message());
  template_ = std::move(*parsed);
  script = [](const engine::Request&) { return Script{bytes_of("Hello!")}; };
  prometheus::BuildGauge().Name("turbo_requests_running").Help("x").Register(registry_).Add({}).Set(0);
  thread_ = std::thread([this] { loop(); });
}

FakeBackend::~FakeBackend() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

std::vector<engine::Request> FakeBackend::requests() const {
  std::lock_guard lock(mutex_);
  return requests_;
}

bool FakeBackend::wait_finished(uint32_t n) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return n_finished >= n; });
}

bool FakeBackend::wait_submitted(size_t n) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return requests_.size() >= n; });
}

Result<uint64_t> FakeBackend::submit(engine::Request request, std::shared_ptr<engine::Listener> listener) {
  std::lock_guard lock(mutex_);
  if (broken) return failure();
  if (draining_ || stop_) return Status(Code::cancelled, "draining");
  if (live_.size() >= queue_limit) return Status(Code::resource_exhausted, "queue full");
  auto live = std::make_shared<Live>();
  live->script = script(request);
  live->request = request;
  live->listener = std::move(listener);
  live->begun = std::chrono::steady_clock::now();
  requests_.push_back(std::move(request));
  live_.emplace(next_, std::move(live));
  changed_.notify_all();
  return next_++;
}

void FakeBackend::cancel(uint64_t id) {
  std::lock_guard lock(mutex_);
  if (const auto found = live_.find(id); found != live_.end()) found->second->cancelled = true;
  changed_.notify_all();
}

void FakeBackend::finish(uint64_t id) {
  std::lock_guard lock(mutex_);
  if (const auto found = live_.find(id); found != live_.end()) found->second->finished = true;
  changed_.notify_all();
}

bool FakeBackend::drain(uint64_t timeout_ms) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  const bool clean = changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return live_.empty(); });
  for (auto& [id, live] : live_) live->cancelled = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return live_.empty(); });
  return clean;
}

void FakeBackend::finish(Live& live, engine::FinishReason reason) {
  engine::Finish finish;
  finish.reason = reason;
  finish.usage = {static_cast<uint32_t>(live.request.prompt.size()), live.n_out, 0};
  finish.timings = {1000, 2000, 3000};
  finish.speculation.add_step(1, 5'000'000);
  finish.speculation.add_step(4, 7'000'000);
  finish.speculation.draft_ns = 500'000;
  if (reason == engine::FinishReason::failed) finish.status = Status(live.script.code, "scripted failure");
  live.listener->on_finish(finish);
}

// One step of one request; true when it ended.
bool FakeBackend::step(Live& live) {
  using engine::FinishReason;
  if (live.finished) return finish(live, FinishReason::stop), true;
  if (live.cancelled) {
    ++n_cancelled;
    return finish(live, FinishReason::cancelled), true;
  }
  if (live.request.timeout_ms && std::chrono::steady_clock::now() - live.begun > std::chrono::milliseconds(live.request.timeout_ms))
    return finish(live, FinishReason::timeout), true;
  if (hold) return false;
  ++n_steps;
  if (!std::exchange(live.admitted, true)) {
    live.listener->on_admitted();
    if (live.request.prompt_logprobs) {
      std::vector<engine::Token> scores;
      for (size_t i = 1; i < live.request.prompt.size(); ++i) scores.push_back({live.request.prompt[i], -0.25f, {}});
      live.listener->on_prompt_scores(1, scores);
    }
    return false;
  }
  if (live.n_out >= live.request.max_tokens) return finish(live, FinishReason::length), true;
  if (live.at >= live.script.tokens.size()) {
    if (live.script.fails) return finish(live, FinishReason::failed), true;
    if (!live.script.endless) return finish(live, FinishReason::stop), true;
    live.at = 0;
  }
  engine::Token token{live.script.tokens[live.at++], -0.5f, {}};
  for (uint32_t i = 0; i < live.request.n_top_logprobs; ++i) token.top.push_back({static_cast<int32_t>('a' + i), -1.0f - static_cast<float>(i)});
  ++live.n_out;
  live.listener->on_tokens({&token, 1});
  return false;
}

void FakeBackend::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !live_.empty(); });
    if (stop_ && live_.empty()) return;
    auto round = live_;
    const bool stopping = stop_;
    lock.unlock();
    std::vector<uint64_t> ended;
    for (auto& [id, live] : round) {
      if (stopping) live->cancelled = true;
      if (step(*live)) ended.push_back(id);
    }
    round.clear();
    lock.lock();
    std::vector<std::shared_ptr<Live>> dead;
    for (const uint64_t id : ended) {
      dead.push_back(live_[id]);
      live_.erase(id);
    }
    lock.unlock();
    const size_t n = dead.size();
    dead.clear();  // listeners go outside the lock
    lock.lock();
    n_finished += static_cast<uint32_t>(n);
    if (n) changed_.notify_all();
    if (!stop_) changed_.wait_for(lock, std::chrono::microseconds(hold ? 1000 : step_us.load()), [&] { return stop_; });
  }
}

Result<std::vector<engine::RequestInfo>> FakeBackend::requests(bool with_prompts) {
  std::lock_guard lock(mutex_);
  std::vector<engine::RequestInfo> all;
  for (const auto& [id, live] : live_) {
    engine::RequestInfo info;
    info.id = id;
    info.name = live->request.name;
    info.state = live->admitted ? engine::RequestState::generating : engine::RequestState::waiting;
    info.prompt_tokens = static_cast<uint32_t>(live->request.prompt.size());
    info.priority = live->request.priority;
    if (with_prompts) info.prompt = live->request.prompt;
    all.push_back(std::move(info));
  }
  return all;
}

}  // namespace turbo::server::testing
