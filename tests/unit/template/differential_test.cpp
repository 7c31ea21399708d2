// Every case of tests/golden/templates/cases.json gives what Python's jinja2 gave; see generate.py there.
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <fstream>

#include "text/template/chat_template.h"

namespace turbo::text {
namespace {

nlohmann::ordered_json load(const std::string& name) {
  std::ifstream file(std::string(TURBO_TEST_DATA) + "/golden/templates/" + name);
  return nlohmann::ordered_json::parse(file);
}

RenderOptions fixed_date() {
  setenv("TZ", "UTC", 1);
  tzset();
  RenderOptions options;
  options.now_unix_s = 1721995200;   // 2024-07-26 12:00:00 UTC
  return options;
}

void check(const nlohmann::ordered_json& expected, const std::string& source, const nlohmann::ordered_json& variables) {
  auto parsed = ChatTemplate::parse(source);
  Result<std::string> got = parsed ? parsed->render(variables, fixed_date()) : Result<std::string>(parsed.status());
  if (expected.contains("output")) {
    ASSERT_TRUE(got.is_ok()) << got.status().message();
    EXPECT_EQ(*got, expected["output"].get<std::string>());
  } else {
    ASSERT_FALSE(got.is_ok()) << "gave " << *got;
    EXPECT_EQ(got.status().code(), Code::invalid_argument) << got.status().message();
    if (expected.contains("raised")) {
      EXPECT_EQ(got.status().message(), expected["raised"].get<std::string>());
    } else {
      EXPECT_TRUE(got.status().message().starts_with("chat template: line ")) << got.status().message();
    }
  }
}

TEST(Differential, SmallCasesMatchJinja2) {
  auto entries = load("cases.json");
  ASSERT_GT(entries.size(), 300u);
  for (size_t i = 1; i < entries.size(); ++i) {
    std::string source = entries[i]["source"];
    SCOPED_TRACE(source);
    check(entries[i], source, entries[0]["context"]);
  }
}

TEST(Differential, ConversationsMatchJinja2) {
  auto entries = load("conversations.json");
  ASSERT_GT(entries.size(), 20u);
  for (const auto& entry : entries) {
    std::string name = entry["template"];
    SCOPED_TRACE(name + ": " + entry["variables"].dump().substr(0, 300));
    std::ifstream file(std::string(TURBO_TEST_DATA) + "/golden/templates/" + name + ".jinja");
    std::string source((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    ASSERT_FALSE(source.empty());
    check(entry, source, entry["variables"]);
  }
}

}  // namespace
}  // namespace turbo::text
