#include "base/log.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

namespace turbo {
namespace {

class Log : public ::testing::Test {
 protected:
  void SetUp() override {
    before_ = spdlog::default_logger();
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(out_)));
  }
  void TearDown() override { spdlog::set_default_logger(before_); }
  std::string line() {
    std::string text = out_.str();
    out_.str("");
    return text;
  }
  std::ostringstream out_;
  std::shared_ptr<spdlog::logger> before_;
};

}  // namespace

TEST_F(Log, JsonStaysJsonWhateverIsLogged) {
  set_log_format(LogFormat::json);
  for (const std::string& text : {std::string("plain"), std::string("\"quotes\" \\ and\nlines"), std::string("\xff\xfe broken"), std::string("nul \0 in", 8)}) {
    spdlog::warn("{}", text);
    const std::string shown = line();
    ASSERT_EQ(std::count(shown.begin(), shown.end(), '\n'), 1) << shown;
    const auto json = nlohmann::json::parse(shown, nullptr, false);
    ASSERT_TRUE(json.is_object()) << shown;
    EXPECT_EQ(json["level"], "warning");
    EXPECT_FALSE(json.contains("request_id"));
    if (text[0] == '"') EXPECT_EQ(json["message"], text);
  }
}

TEST_F(Log, RequestIdsHaveTheirOwnMember) {
  set_log_format(LogFormat::json);
  log_request(spdlog::level::info, "req_1", "took {} ms", 5);
  const auto json = nlohmann::json::parse(line());
  EXPECT_EQ(json["request_id"], "req_1");
  EXPECT_EQ(json["message"], "took 5 ms");
  set_log_format(LogFormat::text);
  log_request(spdlog::level::info, "req_1", "took {} ms", 5);
  EXPECT_NE(line().find(" req_1: took 5 ms\n"), std::string::npos);
}

TEST_F(Log, TextIsOneLine) {
  set_log_format(LogFormat::text);
  spdlog::error("{}", "a\nb\x1b[31m");
  EXPECT_NE(line().find("a\\x0ab\\x1b[31m\n"), std::string::npos);
}

}  // namespace turbo
