// An answer being generated: several engine requests (prompts times n) joined into one HTTP answer, whole or streamed.
//
// Lives on its exchange's strand. The engine thread only appends to a small mailbox and posts one action to the strand.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "server/backend.h"
#include "server/choice.h"
#include "server/http.h"

namespace turbo::server {

struct Answer {
  std::string id, model, fingerprint;
  int64_t created = 0;
  bool stream = false, include_usage = false, timings = false;
  bool logprobs = false;
};

/// Totals over the engine requests of an answer.
struct AnswerUsage {
  uint64_t prompt = 0, completion = 0, cached = 0, reasoning = 0, accepted = 0, rejected = 0;
};
Json usage_json(const AnswerUsage& usage);
Json timings_json(const engine::Finish& finish);

/// How an API spells answers. Stateless; strings are JSON documents.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;
  /// First event of a choice; empty = none.
  virtual std::string first(const Answer& answer, uint32_t choice) const = 0;
  /// One event per delta. `scores` go with the first of them, or alone.
  virtual std::vector<std::string> deltas(const Answer& answer, uint32_t choice, const Choice::Output& output) const = 0;
  virtual std::string last(const Answer& answer, uint32_t choice, const std::string& finish_reason) const = 0;
  virtual std::string usage(const Answer& answer, const AnswerUsage& usage, const engine::Finish* timings) const = 0;

  struct Whole {
    Choice::Output output;  // everything, deltas of one kind joined
    std::string finish_reason;
  };
  virtual std::string whole(const Answer& answer, const std::vector<Whole>& choices, const AnswerUsage& usage,
                            const engine::Finish* timings) const = 0;
};

struct GenerationPlan {
  Answer answer;
  struct Part {
    engine::Request request;
    ChoiceRules rules;
  };
  std::vector<Part> parts;  // by choice index
  uint32_t n = 1;           // parts of one prompt: its tokens are counted once
  std::shared_ptr<const AnswerFormat> format;
};

/// Engine requests not yet ended, so that a server can wait for the engine to let go of it.
class LiveRequests {
 public:
  void began();
  void ended();
  bool wait_none(uint64_t timeout_ms);

 private:
  std::mutex mutex_;
  std::condition_variable none_;
  uint64_t n_ = 0;
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  struct Context {
    std::shared_ptr<Backend> backend;
    std::shared_ptr<LiveRequests> live;
    const text::Tokenizer* tokenizer;
    uint64_t ping_ms = 15000;
  };
  Generation(std::shared_ptr<Exchange> exchange, Context context, GenerationPlan plan);

  /// [strand] Submits, or answers why not.
  void start();
  /// [any thread] Ends it; the client hears an error. False when it is over already.
  bool cancel();

 private:
  class Port;
  struct Mail {
    uint32_t choice;
    enum class Kind { admitted, scores, tokens, finish } kind;
    std::vector<engine::Token> tokens;
    std::optional<engine::Finish> finish;
  };

  void deliver(Mail mail);
  void process();
  void handle(Mail& mail);
  void emit(uint32_t choice);
  void open_stream();
  void arm_ping();
  void event(const std::string& data);
  void complete();
  void fail(const ApiError& error);
  void cancel_all();
  AnswerUsage usage() const;
  void log_end() const;

  const std::shared_ptr<Exchange> exchange_;
  const Context context_;
  GenerationPlan plan_;
  std::vector<Choice> choices_;
  std::vector<uint64_t> ids_;       // engine ids by choice
  std::vector<AnswerFormat::Whole> wholes_;  // when not streaming
  std::vector<uint32_t> prompt_tokens_;
  uint32_t n_ended_ = 0;
  bool streaming_ = false, cancelled_ = false;
  std::atomic<bool> over_{false};  // written on the strand
  std::string batch_;  // events of one round, sent in one piece

  std::mutex mutex_;
  std::vector<Mail> mail_;  // guarded by mutex_
  bool posted_ = false;     // guarded by mutex_
};

}  // namespace turbo::server
