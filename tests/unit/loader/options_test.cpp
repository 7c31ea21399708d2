#include "loader/options.h"

#include <gtest/gtest.h>

#include "helpers.h"

namespace turbo::loader {
namespace {

constexpr const char* schema_text = R"({
  "sinks": {"type": "int", "default": 4, "min": 0, "max": 64, "doc": "kept open"},
  "scale": {"type": "float", "default": 0.5, "min": 0, "max": 1},
  "center": {"type": "bool", "default": true},
  "mode": {"type": "string", "default": "fast", "enum": ["fast", "exact"]},
  "model": {"type": "string"}
})";

OptionSchema schema() { return *OptionSchema::parse(schema_text, "codec"); }

TEST(Options, DefaultsFillWhatIsLeftOut) {
  const auto values = schema().bind({{"sinks", "8"}, {"mode", "exact"}}, "codec");
  ASSERT_TRUE(values) << values.status().message();
  EXPECT_EQ(std::get<int64_t>(values->at("sinks")), 8);
  EXPECT_EQ(std::get<double>(values->at("scale")), 0.5);
  EXPECT_EQ(std::get<bool>(values->at("center")), true);
  EXPECT_EQ(std::get<std::string>(values->at("mode")), "exact");
  EXPECT_EQ(values->count("model"), 0u);
}

TEST(Options, RangesOpenAtAnEndSaySo) {
  const auto low = OptionSchema::parse(R"({"seed": {"type": "int", "min": 0}})", "x")->bind({{"seed", "-1"}}, "x");
  ASSERT_FALSE(low);
  EXPECT_NE(low.status().message().find("expected at least 0 but found -1"), std::string::npos) << low.status().message();
  const auto wide = OptionSchema::parse(R"({"seed": {"type": "int", "min": 0}})", "x")->bind({{"seed", "18446744073709551615"}}, "x");
  ASSERT_FALSE(wide);
  EXPECT_NE(wide.status().message().find("a whole number below 2^63"), std::string::npos) << wide.status().message();
}

TEST(Options, UnknownKeyListsAndSuggests) {
  const auto values = schema().bind({{"sink", "8"}}, "kv_codec 'tq3'");
  ASSERT_FALSE(values);
  EXPECT_EQ(values.status().message(),
            "kv_codec 'tq3': unknown option 'sink'; known: center, mode, model, scale, sinks");
  EXPECT_EQ(values.status().hint(), "did you mean 'sinks'?");
  EXPECT_TRUE(
      contains(OptionSchema::parse(nullptr, "x")->bind({{"a", "1"}}, "x").status().message(), "it has no options"));
}

TEST(Options, ValuesAreTyped) {
  const struct {
    const char *key, *value, *expected;
  } cases[] = {
      {"sinks", "65", "expected 0 to 64 but found 65"},
      {"sinks", "-1", "expected 0 to 64"},
      {"sinks", "4.0", "whole number"},
      {"sinks", "0x10", "whole number"},
      {"sinks", "", "whole number"},
      {"sinks", "99999999999999999999", "whole number"},
      {"scale", "1,5", "a number"},
      {"scale", "nan", "a number"},
      {"scale", "inf", "a number"},
      {"scale", "1.01", "expected 0 to 1"},
      {"center", "yes", "true or false"},
      {"center", "1", "true or false"},
      {"mode", "fats", "expected one of fast, exact but found 'fats'"},
  };
  for (const auto& c : cases) {
    const auto values = schema().bind({{c.key, c.value}}, "codec");
    ASSERT_FALSE(values) << c.key << "=" << c.value;
    EXPECT_TRUE(contains(values.status().message(), c.expected));
    EXPECT_TRUE(contains(values.status().message(), std::string("option '") + c.key + "'"));
  }
  EXPECT_EQ(schema().bind({{"mode", "fats"}}, "codec").status().hint(), "did you mean 'fast'?");
}

TEST(Options, InvalidSchemasAreRefused) {
  const char* cases[] = {
      "[",
      "[]",
      "{\"a\": 1}",
      "{\"a\": {}}",
      "{\"a\": {\"type\": \"color\"}}",
      "{\"A b\": {\"type\": \"int\"}}",
      "{\"a\": {\"type\": \"int\", \"default\": \"x\"}}",
      "{\"a\": {\"type\": \"int\", \"default\": 1.5}}",
      "{\"a\": {\"type\": \"int\", \"default\": 18446744073709551615}}",
      "{\"a\": {\"type\": \"int\", \"default\": 9, \"max\": 8}}",
      "{\"a\": {\"type\": \"int\", \"min\": 9, \"max\": 8}}",
      "{\"a\": {\"type\": \"string\", \"min\": 1}}",
      "{\"a\": {\"type\": \"string\", \"enum\": []}}",
      "{\"a\": {\"type\": \"string\", \"enum\": [1]}}",
      "{\"a\": {\"type\": \"string\", \"default\": \"c\", \"enum\": [\"a\", \"b\"]}}",
      "{\"a\": {\"type\": \"int\", \"unit\": \"ms\"}}",
  };
  for (const char* text : cases) EXPECT_FALSE(OptionSchema::parse(text, "x")) << text;
  const std::string deep = std::string(30000, '[') + std::string(30000, ']');
  EXPECT_FALSE(OptionSchema::parse(deep.c_str(), "x"));
  const std::string long_text = "{" + std::string(70000, ' ') + "}";
  EXPECT_FALSE(OptionSchema::parse(long_text.c_str(), "x"));
}

}  // namespace
}  // namespace turbo::loader
