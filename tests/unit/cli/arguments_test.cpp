// Options and their environment twins: which one counts, and what messages call it.
#include <gtest/gtest.h>

#include "cli/arguments.h"
#include "cli/commands.h"

namespace turbo::cli {
namespace {

Result<Arguments> parsed(const std::vector<std::string>& tokens, std::map<std::string, std::string> variables = {}) {
  return parse_arguments(*find_command("bench"), tokens, [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string reps_error(const Result<Arguments>& arguments) { return arguments->integer("--reps", 5, 1, 1000).status().message(); }

TEST(ArgumentsTest, MessagesNameTheVariableThatWasSet) {
  EXPECT_EQ(reps_error(parsed({}, {{"TURBO_REPS", "many"}})), "TURBO_REPS: expected a whole number from 1 to 1000 but found 'many'");
  EXPECT_EQ(reps_error(parsed({"--reps", "few"})), "--reps: expected a whole number from 1 to 1000 but found 'few'");
  EXPECT_EQ(reps_error(parsed({"--reps", "few"}, {{"TURBO_REPS", "2"}})), "--reps: expected a whole number from 1 to 1000 but found 'few'");
  const auto list = parsed({}, {{"TURBO_DEPTH", "1,x"}});
  EXPECT_EQ(list->integers("--depth", {}, 0, 9).status().message(),
            "TURBO_DEPTH: expected whole numbers from 0 to 9 between commas but found '1,x'");
}

TEST(ArgumentsTest, TheCommandLineOutranksTheVariable) {
  EXPECT_EQ(*parsed({}, {{"TURBO_REPS", "2"}})->integer("--reps", 5, 1, 1000), 2);
  EXPECT_EQ(*parsed({"--reps", "3"}, {{"TURBO_REPS", "2"}})->integer("--reps", 5, 1, 1000), 3);
  EXPECT_EQ(*parsed({}, {{"TURBO_REPS", ""}})->integer("--reps", 5, 1, 1000), 5);
}

}  // namespace
}  // namespace turbo::cli
