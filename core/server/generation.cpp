#include "server/generation.h"

#include <atomic>

#include "base/log.h"

namespace turbo::server {
namespace {

constexpr uint64_t kHeadDelayMs = 1000;  // a stream's head is sent by then even if the request still waits

constexpr const char* kPing = ": ping\n\n";  // a comment of an event stream

double ms(uint64_t ns) { return static_cast<double>(ns) / 1e6; }
double per_second(uint64_t n, uint64_t ns) { return ns ? static_cast<double>(n) * 1e9 / static_cast<double>(ns) : 0.0; }

void append(Choice::Output& all, Choice::Output more) {
  for (Delta& delta : more.deltas) {
    const bool joins = delta.kind != Delta::Kind::tool_begin && !all.deltas.empty() && all.deltas.back().kind == delta.kind &&
                       all.deltas.back().tool == delta.tool;
    if (joins) all.deltas.back().text += delta.text;
    else all.deltas.push_back(std::move(delta));
  }
  std::move(more.scores.begin(), more.scores.end(), std::back_inserter(all.scores));
}

}  // namespace

Json usage_json(const AnswerUsage& usage) {
  return Json{{"prompt_tokens", usage.prompt},
              {"completion_tokens", usage.completion},
              {"total_tokens", usage.prompt + usage.completion},
              {"prompt_tokens_details", {{"cached_tokens", usage.cached}}},
              {"completion_tokens_details",
               {{"reasoning_tokens", usage.reasoning},
                {"accepted_prediction_tokens", usage.accepted},
                {"rejected_prediction_tokens", usage.rejected}}}};
}

namespace {

// [{rows, steps, ms}] of the row counts that occurred.
Json steps_json(const engine::Speculation& speculation) {
  Json steps = Json::array();
  for (size_t rows = 0; rows < speculation.steps_by_rows.size(); ++rows)
    if (const auto& width = speculation.steps_by_rows[rows]; width.steps > 0)
      steps.push_back({{"rows", rows}, {"steps", width.steps}, {"ms", ms(width.ns)}});
  return steps;
}

}  // namespace

Json timings_json(const engine::Finish& finish) {
  const auto& usage = finish.usage;
  const uint64_t computed = usage.prompt_tokens - std::min(usage.cached_tokens, usage.prompt_tokens);
  return Json{{"cache_n", usage.cached_tokens},
              {"prompt_n", computed},
              {"prompt_ms", ms(finish.timings.prompt_ns)},
              {"prompt_per_second", per_second(computed, finish.timings.prompt_ns)},
              {"predicted_n", usage.completion_tokens},
              {"predicted_ms", ms(finish.timings.generate_ns)},
              {"predicted_per_second", per_second(usage.completion_tokens, finish.timings.generate_ns)},
              {"draft_n", finish.speculation.drafted},
              {"draft_n_accepted", finish.speculation.accepted},
              {"draft_rounds", finish.speculation.rounds},
              {"draft_accepted_by_depth", finish.speculation.accepted_by_depth},
              {"draft_ms", ms(finish.speculation.draft_ns)},
              {"steps_by_rows", steps_json(finish.speculation)}};
}

void LiveRequests::began() {
  std::lock_guard lock(mutex_);
  ++n_;
}
void LiveRequests::ended() {
  std::lock_guard lock(mutex_);
  if (--n_ == 0) none_.notify_all();
}
bool LiveRequests::wait_none(uint64_t timeout_ms) {
  std::unique_lock lock(mutex_);
  return none_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return n_ == 0; });
}

// The engine's end of one choice. [engine thread]
class Generation::Port : public engine::Listener {
 public:
  Port(std::shared_ptr<Generation> owner, uint32_t choice)
      : owner_(std::move(owner)), live_(owner_->context_.live), choice_(choice) {
    live_->began();
  }
  ~Port() override {
    owner_.reset();  // before the count says that nothing of the server is held
    live_->ended();
  }
  void on_admitted() override { owner_->deliver({choice_, Mail::Kind::admitted, {}, {}}); }
  void on_prompt_scores(uint32_t, std::span<const engine::Token> tokens) override {
    owner_->deliver({choice_, Mail::Kind::scores, {tokens.begin(), tokens.end()}, {}});
  }
  void on_tokens(std::span<const engine::Token> tokens) override {
    owner_->deliver({choice_, Mail::Kind::tokens, {tokens.begin(), tokens.end()}, {}});
  }
  void on_finish(const engine::Finish& finish) override { owner_->deliver({choice_, Mail::Kind::finish, {}, finish}); }

 private:
  std::shared_ptr<Generation> owner_;
  const std::shared_ptr<LiveRequests> live_;
  const uint32_t choice_;
};

Generation::Generation(std::shared_ptr<Exchange> exchange, Context context, GenerationPlan plan)
    : exchange_(std::move(exchange)), context_(std::move(context)), plan_(std::move(plan)) {
  choices_.reserve(plan_.parts.size());
  for (GenerationPlan::Part& part : plan_.parts) {
    prompt_tokens_.push_back(static_cast<uint32_t>(part.request.prompt.size()));
    choices_.emplace_back(*context_.tokenizer, std::move(part.rules));
  }
  wholes_.resize(plan_.answer.stream ? 0 : choices_.size());
}

void Generation::start() {
  exchange_->on_gone([self = shared_from_this()] {
    self->over_ = true;
    self->cancel_all();
    log_request(spdlog::level::info, self->exchange_->request().id, "the client left or read too slowly, {} cancelled", self->plan_.answer.id);
  });
  for (uint32_t i = 0; i < plan_.parts.size(); ++i) {
    const Result<uint64_t> id = context_.backend->submit(std::move(plan_.parts[i].request), std::make_shared<Port>(shared_from_this(), i));
    if (!id) return fail(id.status().code() == Code::device_lost ? ApiError::unavailable(id.status()) : ApiError::from_engine(id.status()));
    ids_.push_back(*id);
  }
  plan_.parts.clear();
  if (plan_.answer.stream)
    exchange_->set_timer(kHeadDelayMs, [self = shared_from_this()] {
      self->open_stream();
    });
}

bool Generation::cancel() {
  if (over_) return false;
  exchange_->post([self = shared_from_this()] {
    if (self->over_) return;
    self->cancelled_ = true;
    self->cancel_all();
  });
  return true;
}

void Generation::cancel_all() {
  for (const uint64_t id : ids_) context_.backend->cancel(id);
}

void Generation::deliver(Mail mail) {
  {
    std::lock_guard lock(mutex_);
    mail_.push_back(std::move(mail));
    if (std::exchange(posted_, true)) return;
  }
  exchange_->post([self = shared_from_this()] { self->process(); });
}

void Generation::process() {
  std::vector<Mail> mail;
  {
    std::lock_guard lock(mutex_);
    mail.swap(mail_);
    posted_ = false;
  }
  for (Mail& item : mail) {
    if (over_) return;
    handle(item);
  }
  if (over_) return;
  for (uint32_t i = 0; i < choices_.size(); ++i) emit(i);
  if (!batch_.empty()) {
    exchange_->write(std::exchange(batch_, {}));
    if (!over_) arm_ping();
  }
  if (!over_ && n_ended_ == choices_.size()) complete();
}

void Generation::handle(Mail& mail) {
  Choice& choice = choices_[mail.choice];
  switch (mail.kind) {
    case Mail::Kind::admitted:
      if (plan_.answer.stream) open_stream();
      break;
    case Mail::Kind::scores: choice.push_prompt_scores(mail.tokens); break;
    case Mail::Kind::tokens:
      if (choice.stopped()) break;
      for (const engine::Token& token : mail.tokens) choice.push(token);
      if (choice.stopped()) context_.backend->finish(ids_[mail.choice]);
      break;
    case Mail::Kind::finish: {
      const engine::Finish& finish = *mail.finish;
      const bool wanted = choice.stopped() || finish.reason == engine::FinishReason::stop || finish.reason == engine::FinishReason::length;
      if (!wanted) {
        if (finish.reason == engine::FinishReason::timeout) return fail({408, "timeout", "the request's time ran out", {}, {}, false});
        if (finish.reason == engine::FinishReason::failed) {
          log_request(spdlog::level::err, exchange_->request().id, "{} failed: {}", plan_.answer.id, finish.status.message());
          ApiError error = ApiError::from_engine(finish.status);
          if (error.status == 429 || error.status == 400) error = ApiError::internal("the request failed inside the engine");
          return fail(error);
        }
        return fail(cancelled_ ? ApiError{400, "cancelled", "the request was cancelled", {}, {}} : ApiError::draining());
      }
      choice.end(finish);
      ++n_ended_;
      emit(mail.choice);
      if (plan_.answer.stream) {
        open_stream();
        event(plan_.format->last(plan_.answer, mail.choice, choice.finish_reason()));
      } else {
        wholes_[mail.choice].finish_reason = choice.finish_reason();
      }
      break;
    }
  }
}

void Generation::emit(uint32_t index) {
  Choice::Output output = choices_[index].take();
  if (output.empty()) return;
  if (!plan_.answer.stream) return append(wholes_[index].output, std::move(output));
  open_stream();
  for (const std::string& data : plan_.format->deltas(plan_.answer, index, output)) event(data);
}

void Generation::open_stream() {
  if (streaming_ || over_) return;
  streaming_ = true;
  HttpResponse head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers = {{"cache-control", "no-cache"}, {"x-accel-buffering", "no"}};
  head.body = kPing;
  exchange_->start_stream(std::move(head));
  for (uint32_t i = 0; i < choices_.size(); ++i)
    if (const std::string data = plan_.format->first(plan_.answer, i); !data.empty()) event(data);
  if (!batch_.empty()) exchange_->write(std::exchange(batch_, {}));
  if (!over_) arm_ping();
}

void Generation::arm_ping() {
  if (context_.ping_ms == 0) return;
  exchange_->set_timer(context_.ping_ms, [self = shared_from_this()] {
    self->exchange_->write(kPing);
    if (!self->over_) self->arm_ping();
  });
}

void Generation::event(const std::string& data) { batch_ += "data: " + data + "\n\n"; }

AnswerUsage Generation::usage() const {
  AnswerUsage total;
  for (size_t i = 0; i < choices_.size(); ++i) {
    const engine::Finish& finish = choices_[i].finish();
    if (i % plan_.n == 0) {
      total.prompt += prompt_tokens_[i];
      total.cached += finish.usage.cached_tokens;
    }
    total.completion += choices_[i].n_tokens();
    total.reasoning += choices_[i].n_reasoning_tokens();
    total.accepted += finish.speculation.accepted;
    total.rejected += finish.speculation.drafted - std::min(finish.speculation.drafted, finish.speculation.accepted);
  }
  return total;
}

// One line an answer: what it took, for those who look after the server.
void Generation::log_end() const {
  const engine::Finish& first = choices_[0].finish();
  const AnswerUsage total = usage();
  log_request(spdlog::level::info, exchange_->request().id,
              "{}: {} prompt tokens ({} cached), {} generated, queued {:.0f} ms, prompt {:.0f} ms, generation {:.0f} ms{}", plan_.answer.id,
              total.prompt, total.cached, total.completion, ms(first.timings.queued_ns), ms(first.timings.prompt_ns),
              ms(first.timings.generate_ns), first.preemptions ? fmt::format(", preempted {} times", first.preemptions) : "");
}

void Generation::complete() {
  over_ = true;
  log_end();
  const engine::Finish* timings = plan_.answer.timings ? &choices_[0].finish() : nullptr;
  if (!plan_.answer.stream) {
    HttpResponse response;
    response.body = plan_.format->whole(plan_.answer, wholes_, usage(), timings);
    return exchange_->respond(std::move(response));
  }
  if (plan_.answer.include_usage) event(plan_.format->usage(plan_.answer, usage(), timings));
  event("[DONE]");
  exchange_->write(std::exchange(batch_, {}));
  exchange_->end_stream();
}

void Generation::fail(const ApiError& error) {
  if (over_.exchange(true)) return;
  cancel_all();
  if (!streaming_) return exchange_->respond(error_response(error));
  event(to_text(error_json(error)));
  exchange_->write(std::exchange(batch_, {}));
  exchange_->end_stream();
}

}  // namespace turbo::server
