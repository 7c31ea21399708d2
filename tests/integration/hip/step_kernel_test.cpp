// Steps of one row as one launch: the same ids as kernel by kernel, whatever its blocks do, and a way out when one is lost.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "harness.h"
#include "on_hip.h"

namespace turbo::engine::testing {
namespace {

constexpr uint32_t kTokens = 7;
const std::vector<int32_t> kPrompt{3, 141, 59, 265, 35, 89, 79, 323};

/// An environment variable for as long as this lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

struct Text {
  std::vector<int32_t> ids;
  uint64_t moments = 0;  // that the step kernel noted; 0: none ran
};

Text text_of(const std::string& trial, bool step_kernel = true) {
  const auto file = std::filesystem::path(::testing::TempDir()) / ("moments-" + std::to_string(getpid()));
  std::filesystem::remove(file);
  Text text;
  {
    Variable moments("TURBO_HIP_STEP_MOMENTS", file.string());
    std::optional<Variable> tried;
    if (!trial.empty()) tried.emplace("TURBO_HIP_STEP_TRIAL", trial);
    ModelSetup setup = on_hip("models/turbo-mini-q1.gguf", "f16", [&](profile::Profile& profile) { profile.compute.step_kernel = step_kernel; });
    setup.activations = "int8";
    auto runtime = load(setup);
    if (runtime) text.ids = greedy(*runtime, kPrompt, kTokens);
  }
  if (!std::filesystem::exists(file)) return text;
  std::ifstream in(file, std::ios::binary);
  for (uint64_t moment; in.read(reinterpret_cast<char*>(&moment), sizeof moment);) text.moments += moment != 0;
  return text;
}

const Text& plain() {
  static const Text text = text_of("", false);
  return text;
}

TEST(StepKernel, GivesTheIdsOfItsLaunches) {
  ASSERT_EQ(plain().ids.size(), kTokens);
  EXPECT_EQ(plain().moments, 0u);
  const Text text = text_of("");
  EXPECT_EQ(text.ids, plain().ids);
  EXPECT_GT(text.moments, 100u);
}

// Races show where blocks are at other places than usual.
TEST(StepKernel, DelaysChangeNothing) {
  for (const uint32_t seed : {77u}) {
    const Text text = text_of("delays=" + std::to_string(seed));
    EXPECT_EQ(text.ids, plain().ids) << seed;
    EXPECT_GT(text.moments, 100u);
  }
}

TEST(StepKernel, NumbersOfStepsBeginAnew) { EXPECT_EQ(text_of("tag=65530").ids, plain().ids); }

// Mail of the step before must not be taken for that of this one: with the same number it is, and the text shows it. The
// replay that is compared with its launches is the first, so nothing else notices.
TEST(StepKernel, OldMailIsToldByItsNumber) { EXPECT_NE(text_of("stale").ids, plain().ids); }

// In the replay that is compared with its launches, and in a later one.
TEST(StepKernel, ALostBlockEndsItAndTheStepIsRunAgain) {
  for (const std::string trial : {"stop=1,3,1", "stop=3,6,3"}) {
    const Text text = text_of(trial);
    EXPECT_EQ(text.ids, plain().ids) << trial;
  }
}

TEST(StepKernel, ATrialThatIsNoneIsRefused) {
  for (const std::string trial : {"tag=70000", "tag=0", "stop=1,2", "delay=3", "nonsense"}) {
    Variable tried("TURBO_HIP_STEP_TRIAL", trial);
    profile::Profile profile;
    profile.model.path = std::string(TURBO_SOURCE) + "/models/turbo-mini-q1.gguf";
    on_hip("", "f16").tune(profile);
    profile.compute.step_kernel = true;
    const auto runtime = Runtime::load(profile);
    ASSERT_FALSE(runtime) << trial;
    EXPECT_NE(runtime.status().message().find("TURBO_HIP_STEP_TRIAL"), std::string::npos) << runtime.status().message();
  }
}

}  // namespace
}  // namespace turbo::engine::testing
