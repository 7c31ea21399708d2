#include "server/choice.h"

#include <algorithm>

namespace turbo::server {
namespace {

size_t count_characters(std::string_view utf8) {
  return static_cast<size_t>(std::count_if(utf8.begin(), utf8.end(), [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

Choice::Choice(const text::Tokenizer& tokenizer, ChoiceRules rules)
    : rules_(std::move(rules)), decoder_(tokenizer), matcher_(rules_.stops), parser_(rules_.output) {
  if (!rules_.echo_tokens.empty()) {
    // Offsets of prompt tokens, by decoding them as the answer will show them.
    text::StreamDecoder decoder(tokenizer, false);
    size_t chars = 0;
    for (const int32_t id : rules_.echo_tokens) {
      echo_scores_.push_back({id, false, 0, {}, chars});
      chars += count_characters(decoder.push(id));
    }
  }
  decoded_chars_ = count_characters(rules_.echo);
}

void Choice::push_prompt_scores(std::span<const engine::Token> tokens) {
  for (const engine::Token& token : tokens) {
    const auto next = std::find_if(echo_scores_.begin() + (echo_scores_.empty() ? 0 : 1), echo_scores_.end(),
                                   [](const Score& score) { return !score.scored; });
    if (next == echo_scores_.end()) return;
    next->scored = true;
    next->logprob = token.logprob;
    next->top = token.top;
  }
}

void Choice::begin() {
  if (std::exchange(begun_, true)) return;
  if (!rules_.echo.empty()) output_.deltas.push_back({Delta::Kind::content, rules_.echo, 0, {}, {}});
  output_.scores = std::move(echo_scores_);
}

void Choice::push(const engine::Token& token) {
  if (stopped_ || ended()) return;
  begin();
  ++n_tokens_;
  const bool was_thinking = parser_.thinking();
  if (rules_.logprobs) waiting_.push_back({decoded_bytes_, {token.id, true, token.logprob, token.top, decoded_chars_}});
  const std::string decoded = decoder_.push(token.id);
  decoded_bytes_ += decoded.size();
  decoded_chars_ += count_characters(decoded);
  text::StopMatcher::Out out = matcher_.push(decoded);
  stopped_ = stop_string_ = out.stopped;
  text(out.text);
  if (was_thinking || parser_.thinking()) ++n_reasoning_;
  if (parser_.satisfied()) stopped_ = true;
}

void Choice::text(const std::string& certain) {
  certain_bytes_ += certain.size();
  add(parser_.push(certain));
  release_scores(false);
}

void Choice::end(const engine::Finish& finish) {
  if (ended()) return;
  begin();
  if (!stopped_) {
    const std::string tail = decoder_.finish();
    decoded_bytes_ += tail.size();
    text::StopMatcher::Out out = matcher_.push(tail);
    if (out.stopped) stopped_ = stop_string_ = true;
    else out.text += matcher_.finish();
    text(out.text);
  }
  add(parser_.finish());
  release_scores(!stop_string_);
  waiting_.clear();
  finish_ = finish;
}

void Choice::add(std::vector<Delta> deltas) {
  for (Delta& delta : deltas) {
    const bool mergeable = delta.kind != Delta::Kind::tool_begin && !output_.deltas.empty() &&
                           output_.deltas.back().kind == delta.kind && output_.deltas.back().tool == delta.tool;
    if (mergeable) output_.deltas.back().text += delta.text;
    else output_.deltas.push_back(std::move(delta));
  }
}

// A token is shown once any of its text is certain; those of a stop string are not shown.
void Choice::release_scores(bool all) {
  while (!waiting_.empty() && (all || waiting_.front().begin_byte < certain_bytes_)) {
    output_.scores.push_back(std::move(waiting_.front().score));
    waiting_.pop_front();
  }
}

Choice::Output Choice::take() { return std::exchange(output_, {}); }

std::string Choice::finish_reason() const {
  if (parser_.n_tool_calls() > 0) return "tool_calls";
  if (stop_string_) return "stop";
  return finish_->reason == engine::FinishReason::length ? "length" : "stop";
}

}  // namespace turbo::server
