#include "server/output_parser.h"

#include <algorithm>

#include "server/http.h"
#include "server/json_body.h"

namespace turbo::server {
namespace {

constexpr std::string_view kThink = "<think>", kThinkEnd = "</think>", kCall = "<tool_call>", kCallEnd = "</tool_call>";
constexpr int kMaxArgumentDepth = 64;

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

size_t without_trailing_space(std::string_view text, size_t end) {
  while (end > 0 && is_space(text[end - 1])) --end;
  return end;
}

// Where the tail begins that more text could turn into optional white space and then the tag.
size_t safe_length(std::string_view text, std::string_view tag) {
  size_t partial = std::min(text.size(), tag.size() - 1);
  while (partial > 0 && text.substr(text.size() - partial) != tag.substr(0, partial)) --partial;
  return without_trailing_space(text, text.size() - partial);
}

}  // namespace

OutputParser::OutputParser(OutputRules rules)
    : rules_(std::move(rules)),
      state_(rules_.inside_thinking ? State::thinking : rules_.thinking ? State::begin : State::content),
      skip_space_(rules_.inside_thinking) {}

std::vector<Delta> OutputParser::push(std::string_view text) {
  std::vector<Delta> out;
  if (satisfied()) return out;
  pending_ += text;
  while (!satisfied() && advance(out)) {
  }
  return out;
}

std::vector<Delta> OutputParser::finish() {
  std::vector<Delta> out;
  if (satisfied()) return out;
  if (state_ == State::tool) pending_.insert(0, kCall);
  const bool only_space = without_trailing_space(pending_, pending_.size()) == 0;
  if (!(only_space && (skip_space_ || n_tools_ > 0)))
    emit(state_ == State::thinking ? Delta::Kind::reasoning : Delta::Kind::content, pending_, out);
  pending_.clear();
  return out;
}

void OutputParser::emit(Delta::Kind kind, std::string_view text, std::vector<Delta>& out) {
  if (text.empty()) return;
  if (!out.empty() && out.back().kind == kind) out.back().text += text;
  else out.push_back({kind, std::string(text), 0, {}, {}});
}

// One transition; false when more text is needed.
bool OutputParser::advance(std::vector<Delta>& out) {
  if (skip_space_) {
    const auto first = std::find_if_not(pending_.begin(), pending_.end(), is_space);
    pending_.erase(pending_.begin(), first);
    if (pending_.empty()) return false;
    if (state_ != State::begin) skip_space_ = false;
  }
  switch (state_) {
    case State::begin: return advance_begin(out);
    case State::thinking: return advance_until(kThinkEnd, Delta::Kind::reasoning, State::content, out);
    case State::content:
      if (rules_.tools) return advance_until(kCall, Delta::Kind::content, State::tool, out);
      emit(Delta::Kind::content, pending_, out);
      pending_.clear();
      return false;
    case State::tool: return advance_tool(out);
  }
  return false;
}

bool OutputParser::advance_begin(std::vector<Delta>&) {
  const size_t first = static_cast<size_t>(std::find_if_not(pending_.begin(), pending_.end(), is_space) - pending_.begin());
  const std::string_view text = std::string_view(pending_).substr(first);
  if (text.size() < kThink.size() && kThink.substr(0, text.size()) == text) return false;
  if (text.substr(0, kThink.size()) == kThink) {
    pending_.erase(0, first + kThink.size());
    state_ = State::thinking;
    skip_space_ = true;
  } else {
    state_ = State::content;
  }
  return true;
}

bool OutputParser::advance_until(std::string_view tag, Delta::Kind kind, State next, std::vector<Delta>& out) {
  const size_t found = pending_.find(tag);
  if (found == std::string::npos) {
    const size_t safe = safe_length(pending_, tag);
    emit(kind, std::string_view(pending_).substr(0, safe), out);
    pending_.erase(0, safe);
    return false;
  }
  emit(kind, std::string_view(pending_).substr(0, without_trailing_space(pending_, found)), out);
  pending_.erase(0, found + tag.size());
  state_ = next;
  scanned_ = 0;
  skip_space_ = next == State::content;
  return true;
}

bool OutputParser::advance_tool(std::vector<Delta>& out) {
  const size_t found = pending_.find(kCallEnd, scanned_);
  if (found == std::string::npos) {
    scanned_ = pending_.size() > kCallEnd.size() ? pending_.size() - kCallEnd.size() : 0;
    return false;
  }
  const std::string_view call = std::string_view(pending_).substr(0, found);
  if (!parse_call(call, out)) {
    // Not a call after all: the model's words, tags included.
    emit(Delta::Kind::content, kCall, out);
    emit(Delta::Kind::content, call, out);
    emit(Delta::Kind::content, kCallEnd, out);
  } else {
    skip_space_ = true;
  }
  pending_.erase(0, found + kCallEnd.size());
  state_ = State::content;
  return true;
}

bool OutputParser::parse_call(std::string_view text, std::vector<Delta>& out) {
  Result<Json> parsed = parse_json(text, kMaxArgumentDepth);
  if (!parsed || !parsed->is_object()) return false;
  const auto name = parsed->find("name");
  if (name == parsed->end() || !name->is_string()) return false;
  if (std::find(rules_.tool_names.begin(), rules_.tool_names.end(), *name) == rules_.tool_names.end()) return false;
  auto arguments = parsed->find("arguments");
  if (arguments == parsed->end()) arguments = parsed->find("parameters");
  std::string json = arguments == parsed->end() || arguments->is_null() ? "{}"
                     : arguments->is_string()                           ? arguments->get<std::string>()
                                                                        : to_text(*arguments);
  out.push_back({Delta::Kind::tool_begin, {}, n_tools_, "call_" + random_id(), name->get<std::string>()});
  out.push_back({Delta::Kind::tool_arguments, std::move(json), n_tools_, {}, {}});
  ++n_tools_;
  return true;
}

}  // namespace turbo::server
