// Reasoning and tool calls out of generated text: however it is cut, the joined parts are the same.
#include "server/output_parser.h"

#include <gtest/gtest.h>

namespace turbo::server {
namespace {

struct Parts {
  std::string content, reasoning;
  std::vector<std::pair<std::string, std::string>> calls;
  bool operator==(const Parts&) const = default;
};

void add(Parts& parts, const std::vector<Delta>& deltas) {
  for (const Delta& delta : deltas) switch (delta.kind) {
      case Delta::Kind::content: parts.content += delta.text; break;
      case Delta::Kind::reasoning: parts.reasoning += delta.text; break;
      case Delta::Kind::tool_begin: parts.calls.emplace_back(delta.tool_name, ""); break;
      case Delta::Kind::tool_arguments: parts.calls.at(delta.tool).second += delta.text; break;
    }
}

Parts parse(const OutputRules& rules, const std::string& text, size_t cut, size_t cut2) {
  OutputParser parser(rules);
  Parts parts;
  add(parts, parser.push(text.substr(0, cut)));
  add(parts, parser.push(text.substr(cut, cut2 - cut)));
  add(parts, parser.push(text.substr(cut2)));
  add(parts, parser.finish());
  return parts;
}

TEST(OutputParser, EveryPairOfCutsAgrees) {
  const OutputRules all{.thinking = true, .tools = true, .tool_names = {"f"}};
  for (const std::string text : {
           "plain <b> text ", "<think>a < b</think> c", "  <think>\n\nx\n</think>\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call> ",
           "hi <tool_call>{\"name\":\"f\",\"arguments\":{\"a\":[1]}}</tool_call>\n\n<tool_call>\n{\"name\":\"f\"}\n</tool_call>",
           "<tool_call>x</tool_call> y <tool_call>", "<thin", "   ", "<think>never closed </thin"}) {
    const Parts whole = parse(all, text, text.size(), text.size());
    for (size_t a = 0; a <= text.size(); ++a)
      for (size_t b = a; b <= text.size(); ++b) ASSERT_EQ(parse(all, text, a, b), whole) << text << " cut at " << a << ", " << b;
  }
}

TEST(OutputParser, WithoutRulesAllIsContent) {
  const std::string text = " <think>a</think><tool_call>{\"name\":\"f\"}</tool_call> ";
  EXPECT_EQ(parse({}, text, 3, 9), (Parts{text, "", {}}));
}

TEST(OutputParser, DeepArgumentsAreText) {
  const OutputRules rules{.tools = true, .tool_names = {"f"}};
  const std::string text = "<tool_call>{\"name\":\"f\",\"arguments\":" + std::string(5000, '[') + std::string(5000, ']') + "}</tool_call>";
  EXPECT_EQ(parse(rules, text, 0, 0), (Parts{text, "", {}}));
}

TEST(OutputParser, ArgumentsGivenAsTextStayAsTheyAre) {
  const OutputRules rules{.tools = true, .tool_names = {"f"}};
  EXPECT_EQ(parse(rules, "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}</tool_call>", 5, 9).calls[0].second, "{\"a\": 1}");
}

}  // namespace
}  // namespace turbo::server
