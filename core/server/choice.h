// One choice of an answer: its tokens into text, stop strings, log probabilities and parts. Streamed and whole answers
// are both made from the deltas this gives out, so they agree. One thread at a time.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "server/output_parser.h"
#include "text/stop_matcher.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace turbo::server {

/// A token with its scores, as the log-probability lists of both APIs show it.
struct Score {
  int32_t id = 0;
  bool scored = true;  // false: the first token of a prompt has no probability
  float logprob = 0;
  std::vector<engine::TokenLogprob> top{};
  size_t text_offset = 0;  // in characters of the choice's text
};

struct ChoiceRules {
  std::vector<std::string> stops;
  bool logprobs = false;
  OutputRules output;
  std::string echo;                  // text before the generated text
  std::vector<int32_t> echo_tokens;  // scored first, when logprobs and echo were asked for
};

class Choice {
 public:
  /// The tokenizer must outlive the choice.
  Choice(const text::Tokenizer& tokenizer, ChoiceRules rules);

  void push_prompt_scores(std::span<const engine::Token> tokens);
  void push(const engine::Token& token);
  /// The engine's end of it; what was held back comes out.
  void end(const engine::Finish& finish);

  /// No more tokens are wanted: a stop string, or the only tool call that was allowed.
  bool stopped() const { return stopped_; }
  bool ended() const { return finish_.has_value(); }
  const engine::Finish& finish() const { return *finish_; }
  std::string finish_reason() const;

  struct Output {
    std::vector<Delta> deltas;
    std::vector<Score> scores;
    bool empty() const { return deltas.empty() && scores.empty(); }
  };
  /// What became certain since the last call.
  Output take();

  uint32_t n_tokens() const { return n_tokens_; }
  uint32_t n_reasoning_tokens() const { return n_reasoning_; }

 private:
  void begin();
  void add(std::vector<Delta> deltas);
  void text(const std::string& certain);
  void release_scores(bool all);

  const ChoiceRules rules_;
  text::StreamDecoder decoder_;
  text::StopMatcher matcher_;
  OutputParser parser_;
  Output output_;

  struct Waiting {
    size_t begin_byte;
    Score score;
  };
  std::deque<Waiting> waiting_;    // scores of tokens whose text is still held back
  std::vector<Score> echo_scores_;
  size_t decoded_bytes_ = 0, decoded_chars_ = 0, certain_bytes_ = 0;
  bool begun_ = false, stopped_ = false, stop_string_ = false;
  uint32_t n_tokens_ = 0, n_reasoning_ = 0;
  std::optional<engine::Finish> finish_;
};

}  // namespace turbo::server
