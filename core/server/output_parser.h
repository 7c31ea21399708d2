// Generated text into the parts of an answer: content, reasoning between <think> tags, tool calls between <tool_call>
// tags. Streaming: what could still become a tag waits. However the text is cut into pushes, the joined deltas are the
// same. One per choice; one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace turbo::server {

struct Delta {
  enum class Kind { content, reasoning, tool_begin, tool_arguments };
  Kind kind = Kind::content;
  std::string text;  // content, reasoning, or a piece of the arguments' JSON
  uint32_t tool = 0;
  std::string tool_id, tool_name;  // of tool_begin
};

struct OutputRules {
  bool thinking = false;        // recognise <think> at the start
  bool inside_thinking = false; // the prompt ended with <think>
  bool tools = false;           // recognise <tool_call>
  bool single_tool = false;     // the answer ends with the first call
  std::vector<std::string> tool_names{};  // a call of any other is text
};

class OutputParser {
 public:
  explicit OutputParser(OutputRules rules);

  std::vector<Delta> push(std::string_view text);
  /// The end of the text: what was held back. An unfinished call is text.
  std::vector<Delta> finish();

  bool thinking() const { return state_ == State::thinking; }
  uint32_t n_tool_calls() const { return n_tools_; }
  /// Nothing more is wanted (single_tool).
  bool satisfied() const { return rules_.single_tool && n_tools_ > 0; }

 private:
  enum class State { begin, thinking, content, tool };

  bool advance(std::vector<Delta>& out);
  bool advance_begin(std::vector<Delta>& out);
  bool advance_until(std::string_view tag, Delta::Kind kind, State next, std::vector<Delta>& out);
  bool advance_tool(std::vector<Delta>& out);
  bool parse_call(std::string_view text, std::vector<Delta>& out);
  static void emit(Delta::Kind kind, std::string_view text, std::vector<Delta>& out);

  const OutputRules rules_;
  State state_;
  std::string pending_;
  size_t scanned_ = 0;      // bytes of pending_ known not to begin the end tag of a call
  bool skip_space_ = false;  // white space after a tag is not content
  uint32_t n_tools_ = 0;
};

}  // namespace turbo::server
