// Typed values: accepted forms, ranges, and messages that say what was expected.
#include <clocale>

#include "profile/scalar.h"
#include "support.h"

namespace turbo::profile {
namespace {

TEST(Values, IntegersAreDecimalAndPlain) {
  EXPECT_EQ(parse("server: { port: 8080 }\n")->server.port, 8080);
  EXPECT_EQ(parse("server: { port: 0 }\n")->server.port, 0);
  for (const char* text : {"1e3", "0x10", "08", "0o17", "1_000", "+5", "5.0", "no", "on", "'8080'", "\"8080\"", "70000",
                           "-1", "1 000", "~", "99999999999999999999999"}) {
    const auto result = parse(std::string("server:\n  port: ") + text + "\n");
    EXPECT_SAYS(result, "/nowhere/p.yaml:2:9: server.port: expected a whole number from 0 to 65535 but found") << text;
  }
  EXPECT_SAYS(parse("server: { port: '8080' }\n"), "without quotes");
  EXPECT_SAYS(parse("server: { port: 08 }\n"), "leading zero");
  EXPECT_SAYS(parse("server: { port: 0x10 }\n"), "decimal");
  EXPECT_SAYS(parse("server: { port: 1e3 }\n"), "without exponent");
  EXPECT_SAYS(parse("server:\n  port:\n"), "found nothing | give a value, or remove the line");
}

TEST(Values, BooleansAreTrueOrFalse) {
  EXPECT_FALSE(parse("server: { web_page: false }\n")->server.web_page);
  for (const char* text : {"no", "on", "off", "yes", "True", "TRUE", "0", "1", "'true'", "y"})
    EXPECT_SAYS(parse(std::string("server: { web_page: ") + text + " }\n"), "expected true or false but found") << text;
}

TEST(Values, NumbersAreFiniteAndInRange) {
  EXPECT_DOUBLE_EQ(*parse("sampler: { temperature: 0.7 }\n")->sampler.temperature, 0.7);
  EXPECT_DOUBLE_EQ(*parse("sampler: { temperature: 1 }\n")->sampler.temperature, 1);
  EXPECT_DOUBLE_EQ(*parse("sampler: { temperature: 5e-1 }\n")->sampler.temperature, 0.5);
  EXPECT_FALSE(parse("sampler: { temperature: null }\n")->sampler.temperature.has_value());
  for (const char* text : {".nan", ".inf", "nan", "inf", "0x1p2", "00.5", "'0.7'", "2.1", "-0.1", "1e999", "warm"})
    EXPECT_SAYS(parse(std::string("sampler: { temperature: ") + text + " }\n"), "expected a number from 0 to 2")
        << text;
  EXPECT_EQ(*parse("sampler: { seed: -5 }\n")->sampler.seed, -5);
  EXPECT_EQ(*parse("sampler: { seed: 9223372036854775807 }\n")->sampler.seed, INT64_MAX);
  EXPECT_EQ(*parse("sampler: { top_k: -1 }\n")->sampler.top_k, -1);
}

TEST(Values, LocaleWithCommaDecimalsChangesNothing) {
  const char* before = std::setlocale(LC_ALL, nullptr);
  const std::string saved = before == nullptr ? "C" : before;
  for (const char* locale : {"de_DE.UTF-8", "fr_FR.UTF-8", "C.UTF-8"}) std::setlocale(LC_ALL, locale);
  EXPECT_DOUBLE_EQ(*parse("sampler: { temperature: 0.7 }\n")->sampler.temperature, 0.7);
  EXPECT_FALSE(parse("sampler: { temperature: \"0,7\" }\n").is_ok());
  std::setlocale(LC_ALL, saved.c_str());
}

TEST(Values, SizesWithUnits) {
  const auto pool = [](const std::string& text) { return parse("kv: { pool_bytes: " + text + " }\n"); };
  EXPECT_EQ(pool("512MiB")->kv.pool_bytes, 512ull << 20);
  EXPECT_EQ(pool("1GB")->kv.pool_bytes, 1000'000'000ull);
  EXPECT_EQ(pool("2 GiB")->kv.pool_bytes, 2ull << 30);
  EXPECT_EQ(pool("'2GiB'")->kv.pool_bytes, 2ull << 30);
  EXPECT_EQ(pool("1048576")->kv.pool_bytes, 1ull << 20);
  EXPECT_EQ(pool("auto")->kv.pool_bytes, 0u);
  for (const char* text : {"512M", "512mib", "1.5GiB", "1e9", "-1GB", "GiB", "512MiBs", "'1048576'", "5B", "0x10MiB",
                           "99999999999999TiB", "18446744073709551615TiB", "08MiB", "no"})
    EXPECT_SAYS(pool(text), "with a unit (B, KB, MB, GB, TB, KiB, MiB, GiB, TiB)") << text;
}

TEST(Values, TimesWithUnits) {
  const auto ping = [](const std::string& text) { return parse("server: { sse_ping_ms: " + text + " }\n"); };
  EXPECT_EQ(ping("1500")->server.sse_ping_ms, 1500u);
  EXPECT_EQ(ping("20s")->server.sse_ping_ms, 20000u);
  EXPECT_EQ(ping("5m")->server.sse_ping_ms, 300000u);
  EXPECT_EQ(ping("1h")->server.sse_ping_ms, 3600000u);
  EXPECT_EQ(ping("none")->server.sse_ping_ms, 0u);
  for (const char* text : {"20 sec", "1.5s", "-1s", "1d", "50ms", "1e3", "'1500'", "100h"})
    EXPECT_SAYS(ping(text), "with a unit (ms, s, m, h)") << text;
}

TEST(Values, ChoicesListsAndMaps) {
  EXPECT_SAYS(parse("compute: { activations: in8 }\n"),
              "expected one of int8, f32 but found 'in8' | did you mean 'int8'?");
  EXPECT_SAYS(parse("tiers: cpu\n"),
              "p.yaml:1:8: tiers: expected a list of hip, generic, cpu such as [hip] but found 'cpu'");
  EXPECT_SAYS(parse("tiers: [cpu, cuda]\n"), "p.yaml:1:14: tiers: expected one of hip, generic, cpu but found 'cuda'");
  EXPECT_SAYS(parse("tiers: [[cpu]]\n"), "but found a list in it");
  EXPECT_SAYS(parse("tiers: []\n"), "expected at least one of hip, generic, cpu");
  EXPECT_SAYS(parse("tiers: [cpu, cpu]\n"), "'cpu' is listed twice");
  EXPECT_SAYS(parse("kv: { options: [a] }\n"), "expected a map such as { name: value } but found a list");
  EXPECT_SAYS(parse("kv: { options: { a: [1] } }\n"), "kv.options.a: expected a single value but found a list");
  EXPECT_EQ(parse("kv: { options: { sinks: 64 } }\n")->kv.options.at("sinks"), "64");
  EXPECT_SAYS(parse("server: 8080\n"), "server: expected settings but found '8080' | write server: { host: ... }");
  EXPECT_SAYS(parse("model: { path: [a] }\n"), "model.path: expected a path but found a list");
  EXPECT_SAYS(parse("model: { name: '' }\n"), "model.name: expected text");
  EXPECT_SAYS(parse("schema: 2\n"), "schema: expected a whole number equal to 1 but found '2'");
  EXPECT_TRUE(parse("server:\n  # port: 1\nkv:\n").is_ok());
}

TEST(Values, TheDeviceAndHowItIsCalled) {
  const auto defaults = parse("schema: 1\n");
  EXPECT_TRUE(defaults->compute.device == "auto" && defaults->compute.graphs && defaults->compute.fuse);
  const auto set = parse("compute: { device: 1, graphs: false, fuse: false }\n");
  EXPECT_TRUE(set->compute.device == "1" && !set->compute.graphs && !set->compute.fuse) << set.status().message();
  EXPECT_EQ(parse("compute: { device: RX 7900 XTX }\n")->compute.device, "RX 7900 XTX");
  EXPECT_EQ(parse("compute: { device: \"0000:03:00.0\" }\n")->compute.device, "0000:03:00.0");
  EXPECT_SAYS(parse("compute: { device: '' }\n"), "compute.device: expected text");
  EXPECT_SAYS(parse("compute: { graphs: maybe }\n"), "compute.graphs: expected true or false");
}

TEST(Values, LongTextAndLongListsAreBounded) {
  EXPECT_SAYS(parse("model: { name: " + std::string(5000, 'x') + " }\n"), "expected at most 4096 bytes");
  std::string many;
  for (int i = 0; i < 300; ++i) many += "'k" + std::to_string(i) + "',";
  EXPECT_SAYS(parse("server: { api_keys: [" + many + "] }\n"), "expected at most 256 items");
  std::string wrong = what(parse("server: { port: " + std::string(3000, 'x') + " }\n"));
  EXPECT_LT(wrong.size(), 400u);  // messages stay short
}

TEST(Values, EnvironmentReferences) {
  ::setenv("TURBO_TEST_FOLDER", "/data", 1);
  ::unsetenv("TURBO_TEST_UNSET");
  EXPECT_EQ(parse("model: { path: '${TURBO_TEST_FOLDER}/m.gguf' }\n")->model.path, "/data/m.gguf");
  EXPECT_SAYS(parse("model: { path: '${TURBO_TEST_UNSET}/m.gguf' }\n"),
              "p.yaml:1:16: model.path: the environment variable 'TURBO_TEST_UNSET' is not set");
  EXPECT_SAYS(parse("model: { path: '${TURBO_TEST_UNSET' }\n"), "expected '}' after '${'");
  EXPECT_SAYS(parse("model: { path: '${}' }\n"), "is not set");
  EXPECT_SAYS(parse("server: { api_keys: ['${TURBO_TEST_UNSET}'] }\n"), "is not set");
  ::setenv("HOME", "/home/someone", 1);
  EXPECT_EQ(parse("model: { path: ~/m.gguf }\n")->model.path, "/home/someone/m.gguf");
  EXPECT_EQ(parse("model: { name: '${TURBO_TEST_UNSET}' }\n")->model.name, "${TURBO_TEST_UNSET}");  // only in paths
}

}  // namespace
}  // namespace turbo::profile
