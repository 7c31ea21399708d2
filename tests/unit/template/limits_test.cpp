// Hostile templates end in an error, soon, whatever they try.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "text/template/chat_template.h"

namespace turbo::text {
namespace {

using Json = nlohmann::ordered_json;

Status outcome(const std::string& source, const Json& variables = Json::object(), TemplateLimits limits = {}) {
  auto parsed = ChatTemplate::parse(source, limits);
  if (!parsed) return parsed.status();
  return parsed->render(variables).status();
}

std::string repeated(const std::string& text, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += text;
  return out;
}

void expect_exhausted(const std::string& source, const Json& variables = Json::object()) {
  SCOPED_TRACE(source.substr(0, 100));
  Status status = outcome(source, variables);
  EXPECT_EQ(status.code(), Code::resource_exhausted) << status.message();
  EXPECT_TRUE(status.message().starts_with("chat template: ")) << status.message();
  EXPECT_FALSE(status.hint().empty());
}

TEST(TemplateLimits, DeepNestingIsRefusedWhileParsing) {
  constexpr size_t n = 6000;
  expect_exhausted("{{ " + repeated("(", n) + "1" + repeated(")", n) + " }}");
  expect_exhausted("{{ " + repeated("[", n) + repeated("]", n) + " }}");
  expect_exhausted("{{ " + repeated("{1:", n) + "1" + repeated("}", n) + " }}");
  expect_exhausted("{{ " + repeated("-", n) + "1 }}");
  expect_exhausted("{{ " + repeated("not ", n) + "1 }}");
  expect_exhausted("{{ x" + repeated(".a", n) + " }}");
  expect_exhausted("{{ x" + repeated("[0]", n) + " }}");
  expect_exhausted("{{ x" + repeated("()", n) + " }}");
  expect_exhausted("{{ x" + repeated("|upper", n) + " }}");
  expect_exhausted("{{ x" + repeated(" if x", n) + " }}");
  expect_exhausted("{{ " + repeated("x if x else ", n) + "x }}");
  expect_exhausted("{{ " + repeated("f(", n) + repeated(")", n) + " }}");
  expect_exhausted("{{ " + repeated("x[", n) + "0" + repeated("]", n) + " }}");
  expect_exhausted(repeated("{% if 1 %}", n) + repeated("{% endif %}", n));
  expect_exhausted(repeated("{% for x in y %}", n) + repeated("{% endfor %}", n));
  expect_exhausted(repeated("{% if 1 %}", n));
  expect_exhausted("{% for " + repeated("(", n) + "x" + repeated(")", n) + " in y %}{% endfor %}");
  expect_exhausted("{% filter upper" + repeated("|upper", n) + " %}{% endfilter %}");
  expect_exhausted(repeated("{% macro m() %}", n) + repeated("{% endmacro %}", n));
}

TEST(TemplateLimits, ReasonableNestingAndLongChainsAreFine) {
  EXPECT_TRUE(outcome("{{ " + repeated("(", 60) + "1" + repeated(")", 60) + " }}").is_ok());
  EXPECT_TRUE(outcome(repeated("{% if 1 %}", 60) + "x" + repeated("{% endif %}", 60)).is_ok());
  EXPECT_TRUE(outcome("{{ 1" + repeated(" + 1", 20000) + " }}").is_ok());
  EXPECT_TRUE(outcome("{{ 1" + repeated(" ~ 1", 20000) + " }}").is_ok());
  EXPECT_TRUE(outcome("{{ 1" + repeated(" and 1", 20000) + " }}").is_ok());
  EXPECT_TRUE(outcome("{{ 1" + repeated(" < 2", 1) + repeated(" <= 2", 20000) + " }}").is_ok());
  EXPECT_TRUE(outcome("{% if 0 %}" + repeated("{% elif 0 %}", 20000) + "{% endif %}").is_ok());
}

// Links of a chain inside brackets inside links: each expression passes the parser, their product must not run deep.
TEST(TemplateLimits, ChainsInsideBracketsAreBoundedWhenRun) {
  std::string source = "x";
  for (size_t level = 0; level < 90; ++level) source = "(" + source + repeated("|string", 5) + ")";
  Status status = outcome("{{ " + source + " }}", {{"x", "y"}});
  EXPECT_TRUE(status.is_ok() || status.code() == Code::resource_exhausted) << status.message();
}

TEST(TemplateLimits, RecursionStops) {
  expect_exhausted("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
  expect_exhausted("{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}");
  expect_exhausted("{% macro m(x) %}{{ x(x) }}{% endmacro %}{{ m(m) }}");
  expect_exhausted("{% macro m() %}{% call m() %}{% endcall %}{{ caller() }}{% endmacro %}{% call m() %}{% endcall %}");
  expect_exhausted("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}");
  std::string deep = repeated("(", 80) + "m()" + repeated("|string)", 80);
  expect_exhausted("{% macro m() %}{{ " + deep + " }}{% endmacro %}{{ m() }}");
}

TEST(TemplateLimits, LoopsStop) {
  expect_exhausted("{% for i in range(10**12) %}{% endfor %}");
  expect_exhausted("{{ range(10**18) | list }}");
  expect_exhausted("{{ range(-10**18, 10**18, 10**17) | list }}");
  expect_exhausted("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}");
  expect_exhausted("{% for i in range(100000) %}{% for j in range(100000) %}{% continue %}{% endfor %}{% endfor %}");
  expect_exhausted("{% set l = range(100000) | list %}{% for i in l %}{% if i in l[::-1] %}{% endif %}{% endfor %}");
  expect_exhausted("{% set l = range(100000) | list %}{% for i in l %}{{ l | sort | length }}{% endfor %}");
}

TEST(TemplateLimits, GrowthStops) {
  expect_exhausted("{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}");
  expect_exhausted("{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}");
  expect_exhausted("{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s | replace('a', ns.s) %}{% endfor %}");
  expect_exhausted("{{ 'a' * 10**9 }}");
  expect_exhausted("{{ [0] * 10**9 }}");
  expect_exhausted("{{ 'ab' * 9223372036854775807 }}");
  expect_exhausted("{{ [0, 1] * 9223372036854775807 }}");
  expect_exhausted("{{ 'a' | center(10**12) }}");
  expect_exhausted("{{ 'a'.ljust(9223372036854775807) }}");
  expect_exhausted("{{ '%1000000000s' % 'a' }}");
  expect_exhausted("{{ '{:1000000000}'.format('a') }}");
  expect_exhausted("{{ '%.1000000000f' % 1.5 }}");
  expect_exhausted("{{ [1] | batch(10**12, 0) }}");
  expect_exhausted("{{ [1] | slice(10**12, 0) }}");
  expect_exhausted("{{ 'a' | indent(10**12, true) }}");
  expect_exhausted("{{ [1] | tojson(indent=10**12) }}");
  expect_exhausted("{% set s = 'x' * 1000000 %}{% for i in range(100000) %}{{ s }}{% endfor %}");
  expect_exhausted("{% set l = ['x' * 1000000] %}{{ (l * 1000) | join | length }}");
  expect_exhausted("{% macro m() %}{% set x %}{{ 'x' * 20000000 }}{{ m() }}{% endset %}{% endmacro %}{{ m() }}");
  expect_exhausted("{% set s = 'x' * 1000000 %}{% for i in range(50) %}{{ (s | list) is none }}{% endfor %}");
}

TEST(TemplateLimits, DeepAndCyclicValuesStop) {
  expect_exhausted("{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}");
  expect_exhausted("{% set l = [] %}{% set _ = l.append(l) %}{{ l }}");
  expect_exhausted("{% set l = [] %}{% set _ = l.append(l) %}{{ l | tojson }}");
  expect_exhausted("{% set a = [] %}{% set b = [] %}{% set _ = a.append(b) %}{% set _ = b.append(a) %}{{ a == [b] }}{{ a == b }}{{ a < b }}");
  expect_exhausted("{% set d = {} %}{% set _ = d.update(d=d) %}{{ d }}");
  expect_exhausted("{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}");
  expect_exhausted("{% set ns = namespace(l=(1,)) %}{% for i in range(99999) %}{% set ns.l = (ns.l,) %}{% endfor %}{{ {ns.l: 1} }}");
  // Built but never walked: freeing it must not recurse either.
  EXPECT_TRUE(outcome("{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}").is_ok());
  Json deep = 1;
  for (int i = 0; i < 150; ++i) deep = Json::array({std::move(deep)});   // copying JSON recurses, so no deeper
  expect_exhausted("{{ x }}", {{"x", deep}});
}

TEST(TemplateLimits, SearchesStayLinear) {
  Json variables = {{"text", std::string(1 << 20, 'a')}, {"needle", std::string(1 << 19, 'a') + "b"}};
  for (const char* expr : {"needle in text", "text.find(needle)", "text.rfind(needle)", "text.count(needle)", "text | replace(needle, '') | length",
                           "text.split(needle) | length", "text.rsplit(needle, 5) | length", "text.rpartition(needle) | length",
                           "text.strip(needle) | length", "text | trim(needle) | length", "text < needle"}) {
    SCOPED_TRACE(expr);
    Status status = outcome("{{ " + std::string(expr) + " }}", variables);
    EXPECT_TRUE(status.is_ok() || status.code() == Code::resource_exhausted) << status.message();
  }
}

TEST(TemplateLimits, SizesOfSourceAndOutput) {
  expect_exhausted(std::string(10 << 20, 'x'));
  expect_exhausted("{{ [" + repeated("1,", 400000) + "] }}");
  TemplateLimits small;
  small.max_output_bytes = 10;
  EXPECT_EQ(outcome("12345678901", Json::object(), small).code(), Code::resource_exhausted);
  EXPECT_TRUE(outcome("1234567890", Json::object(), small).is_ok());
  small = {};
  small.max_steps = 100;
  EXPECT_EQ(outcome("{% for i in range(200) %}{{ i }}{% endfor %}", Json::object(), small).code(), Code::resource_exhausted);
}

TEST(TemplateLimits, BrokenOrOddSourcesNeverCrash) {
  for (const char* source : {"", "{", "{{", "{%", "{#", "{% raw", "{% raw %}", "{{ '", "{{ '\\", "{{ '\\x", "{{ '\\ud800' }}", "{{ 0x }}", "{{ 1e }}",
                             "{{ 99999999999999999999 }}", "{{ 9223372036854775807 + 1 }}", "{{ -9223372036854775807 - 2 }}", "{{ (-9223372036854775807 - 1) // -1 }}",
                             "{{ (-9223372036854775807 - 1) % -1 }}", "{{ (-9223372036854775807 - 1) | abs }}", "{{ 3 ** 1000000000000 }}", "{{ [1][::9223372036854775807] }}",
                             "{{ [1][-9223372036854775807 - 1:] }}", "{{ 'a'[9223372036854775807] }}", "{{ 'abc'[::-9223372036854775807 - 1] }}", "{{ range(3)[::9223372036854775807] }}",
                             "{{ 1.5 | round(9223372036854775807) }}", "{{ 1.5 | round(-9223372036854775807) }}", "{{ 1e308 * 10 | int }}", "{{ (1e308 * 10) | int }}", "{{ (1e308 * 10) | round }}",
                             "{{ strftime_now('%999999999d%') }}", "{{ 'a' * -1 }}", "{% for a, in [[1]] %}{{ a }}{% endfor %}", "{{ cycler() }}", "{{ cycler(1)() }}", "{{ namespace(1) }}",
                             "{{ \xff\xfe }}", "\xff{{ '\xff'[0] | upper | length }}", "{{ '\xc3'.strip('\xa9') }}", "{{ x.\xc3 }}", "{% set ns = namespace() %}{% for x in [1, 2] %}{% set ns.l = loop %}{% endfor %}{{ ns.l.previtem }}{{ ns.l.nextitem }}{{ ns.l.index }}{{ ns.l.revindex }}",
                             "{% set l = [1, 2, 3] %}{% for x in l %}{{ l.pop() }}{% set _ = l.append(l.pop) %}{{ l.clear() }}{% endfor %}", "{{ [1e308 * 10 - 1e308 * 10, 1] | groupby(0) }}",
                             "{% set nan = 1e308 * 10 - 1e308 * 10 %}{{ [nan, 1, nan, 0] | sort }}{{ [{'a': nan}, {'a': nan}] | groupby('a') | length }}"}) {
    SCOPED_TRACE(source);
    (void)outcome(source, {{"x", 1}});
  }
}

TEST(TemplateLimits, TemplatesReachNothingButData) {
  for (const char* source : {"{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ x.__init__.__globals__ }}", "{{ self.__init__ () }}", "{{ range.__globals__['os'] }}",
                             "{{ cycler.__init__.__globals__.os.popen('id').read() }}", "{{ ''|attr('__class__')|attr('__mro__')|first }}", "{{ namespace.__init__() }}",
                             "{{ '{0.__class__.__mro__}'.format('') }}", "{{ lipsum.__globals__ }}", "{{ config.items() }}", "{% include '/etc/passwd' %}", "{% import 'os' as os %}"}) {
    SCOPED_TRACE(source);
    EXPECT_EQ(outcome(source, {{"x", Json::object()}}).code(), Code::invalid_argument);
  }
}

TEST(TemplateErrors, NameTheLineAndTheNearestFilter) {
  EXPECT_EQ(outcome("a\n\n{{ 'x' | uper }}").message(), "chat template: line 3: unknown filter 'uper' (did you mean 'upper'?)");
  EXPECT_EQ(outcome("a\n{{ 'x' | zzzzzz }}").message(), "chat template: line 2: unknown filter 'zzzzzz'");
  EXPECT_EQ(outcome("\n\n\n{{ missing.x }}").message(), "chat template: line 4: 'missing' is undefined");
  EXPECT_EQ(outcome("{% if true %}\n{% if x %}").message(), "chat template: line 2: block is never closed: expected 'endif'");
  EXPECT_EQ(outcome("{% include 'a' %}").message(), "chat template: line 1: 'include' is not supported: a chat template stands alone");
  Status raised = outcome("{{ raise_exception('only one question at a time') }}");
  EXPECT_EQ(raised.message(), "only one question at a time");
  EXPECT_EQ(raised.code(), Code::invalid_argument);
  EXPECT_EQ(outcome("x", Json::array()).code(), Code::invalid_argument);
}

TEST(TemplateThreads, OneTemplateRendersOnManyThreads) {
  auto parsed = ChatTemplate::parse("{% macro m(x) %}<{{ x }}>{% endmacro %}{% for m_ in messages %}{{ m(m_.content ~ 'é') }}{% endfor %}");
  ASSERT_TRUE(parsed.is_ok());
  std::vector<std::thread> threads;
  std::vector<std::string> outputs(4);
  for (size_t t = 0; t < outputs.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        auto text = parsed->render({{"messages", Json::array({{{"content", std::to_string(t)}}})}});
        outputs[t] = text ? *text : text.status().message();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (size_t t = 0; t < outputs.size(); ++t) EXPECT_EQ(outputs[t], "<" + std::to_string(t) + "é>");
}

}  // namespace
}  // namespace turbo::text
