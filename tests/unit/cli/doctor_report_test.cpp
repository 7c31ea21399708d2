#include "cli/doctor_report.h"

#include <gtest/gtest.h>

#include "cli/child.h"

namespace turbo::cli {
namespace {

// A shell stands for the program: what a child may do to its parent.
ChildResult shell(const std::string& script, int limit_ms = 20000, size_t most_bytes = 1 << 20) {
  ChildSettings settings;
  settings.executable = "/bin/sh";
  settings.limit = std::chrono::milliseconds(limit_ms);
  settings.most_bytes = most_bytes;
  settings.keeps_variable = [](const std::string& name) { return name == "PATH"; };
  return run_child({"-c", script}, settings);
}

TEST(Child, SaysWhatItPrintedAndHowItEnded) {
  const ChildResult result = shell("echo out; echo err >&2; exit 3");
  EXPECT_EQ(result.failure, "");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.err, "err\n");
}

TEST(Child, ACrashIsAnAnswer) {
  const ChildResult result = shell("echo before; kill -SEGV $$");
  EXPECT_EQ(result.out, "before\n");
  EXPECT_NE(result.failure.find("ended by signal 11"), std::string::npos) << result.failure;
}

TEST(Child, TimeAndOutputAreBounded) {
  const ChildResult hangs = shell("echo before; exec sleep 60", 300);
  EXPECT_EQ(hangs.out, "before\n");
  EXPECT_NE(hangs.failure.find("did not end within 0.3 s"), std::string::npos) << hangs.failure;
  EXPECT_LT(hangs.seconds, 20);
  const ChildResult silent = shell("exec >&- 2>&-; exec sleep 60", 300);
  EXPECT_NE(silent.failure, "");
  const ChildResult floods = shell("i=0; while [ $i -lt 500 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done", 20000, 1000);
  EXPECT_EQ(floods.out.size(), 1000u);
  EXPECT_EQ(floods.exit_code, 0);
}

TEST(Child, OnlyKeptVariablesArrive) {
  ::setenv("TURBO_TEST_OF_CHILD", "seen", 1);
  EXPECT_EQ(shell("echo \"$TURBO_TEST_OF_CHILD\"").out, "\n");
  ::unsetenv("TURBO_TEST_OF_CHILD");
}

TEST(Child, AProgramThatIsNotThere) {
  ChildSettings settings;
  settings.executable = "/no/such/program";
  EXPECT_EQ(run_child({}, settings).exit_code, 127);
}

TEST(DoctorReport, ComparesIds) {
  EXPECT_EQ(compare_ids({1, 2}, {1, 2}).dump(), R"({"same_ids":true})");
  EXPECT_EQ(compare_ids({1, 2, 3}, {1, 4, 3}).dump(), R"({"same_ids":false,"first_difference":1})");
  EXPECT_EQ(compare_ids({1}, {1, 2}).dump(), R"({"same_ids":false,"first_difference":1})");
}

TEST(DoctorReport, TextKeepsEveryValue) {
  const nlohmann::ordered_json report{{"a", "x\ny"}, {"list", {{{"k", 1}, {"l", true}}, "word"}}, {"none", nlohmann::ordered_json::array()}, {"deep", {{"n", nullptr}}}};
  EXPECT_EQ(report_text(report), "a: x\n  y\nlist:\n  - k: 1\n    l: yes\n  - word\nnone: none\ndeep:\n  n: none\n");
}

}  // namespace
}  // namespace turbo::cli
