// What kv.options says to the core, apart from what it says to a codec.
#include "kv/policy.h"

#include <gtest/gtest.h>

namespace turbo::kv {
namespace {

using Options = std::map<std::string, std::string>;

TEST(CodecPolicy, TakesItsOwnKeysAndLeavesTheCodecs) {
  Options options{{"seed", "7"}, {"center", "off"}, {"boundary", "3"}, {"self_check", "off"}, {"sinks", "8"}, {"promote_k", "f16"}, {"prefill", "consistent"}};
  const auto policy = take_policy(options, "tq3");
  ASSERT_TRUE(policy) << policy.status().message();
  EXPECT_FALSE(policy->center);
  EXPECT_FALSE(policy->self_check);
  EXPECT_EQ(policy->boundary, 3u);
  EXPECT_EQ(policy->promote_k, "f16");
  EXPECT_EQ(policy->promote_v, "tq4");
  EXPECT_EQ(options, (Options{{"seed", "7"}, {"sinks", "8"}}));
}

TEST(CodecPolicy, PromotedValuesStayInTheFamily) {
  for (const auto& [v, wider] : {std::pair{"tq2", "tq4"}, {"tq3", "tq4"}, {"rq3_planar", "rq4_planar"}, {"rq3_iso", "rq4_iso"}, {"tq4", "q8"}, {"mine", "q8"}}) {
    Options none;
    EXPECT_EQ(take_policy(none, v)->promote_v, wider) << v;
  }
  Options named{{"promote_v", "other"}};
  EXPECT_EQ(take_policy(named, "tq2")->promote_v, "other");
}

TEST(CodecPolicy, CentersAreASwitchOrAFile) {
  for (const std::string path : {"./centers", "/a/b", "mine.kvkeys", "on/off"}) {
    Options options{{"center", path}};
    const auto policy = take_policy(options, "tq3");
    ASSERT_TRUE(policy) << path;
    EXPECT_TRUE(policy->center);
    EXPECT_EQ(policy->center_file, path);
    EXPECT_TRUE(options.empty());
  }
  for (const std::string text : {"on", "off"}) {
    Options options{{"center", text}};
    EXPECT_EQ(take_policy(options, "tq3")->center_file, "") << text;
  }
  for (const std::string text : {"maybe", "", "centers"}) {
    Options options{{"center", text}};
    const auto policy = take_policy(options, "tq3");
    ASSERT_FALSE(policy) << text;
    EXPECT_NE(policy.status().message().find("the path of a file"), std::string::npos) << policy.status().message();
  }
}

TEST(CodecPolicy, DefaultsAreOnAndAutomatic) {
  Options none{{"boundary", "auto"}};
  const auto policy = take_policy(none, "tq2");
  ASSERT_TRUE(policy);
  EXPECT_TRUE(policy->center);
  EXPECT_TRUE(policy->self_check);
  EXPECT_FALSE(policy->boundary);
  EXPECT_EQ(policy->promote_k, "q8");
  EXPECT_FALSE(policy->exact_prefill);
}

TEST(CodecPolicy, PromptsMayBeReadExactly) {
  Options options{{"prefill", "exact"}};
  EXPECT_TRUE(take_policy(options, "tq3")->exact_prefill);
  EXPECT_TRUE(options.empty());
}

TEST(CodecPolicy, KeysAreAllOfThoseTaken) {
  Options options;
  for (const std::string& key : policy_keys()) options[key] = key == "boundary" ? "1" : key == "prefill" ? "consistent" : "on";
  const size_t n = options.size();
  ASSERT_TRUE(take_policy(options, "tq3"));
  EXPECT_EQ(n, 6u);
  EXPECT_EQ(options, Options{});
}

TEST(CodecPolicy, SidesHaveNoPolicyOfTheirOwn) {
  EXPECT_TRUE(refuse_policy_keys({{"sinks", "8"}}, "kv.k_options").is_ok());
  const Status status = refuse_policy_keys({{"boundary", "1"}, {"sinks", "8"}}, "kv.k_options");
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(status.message(), "kv.k_options: 'boundary' is an option of the whole cache, not of a codec");
  EXPECT_EQ(status.hint(), "write kv.options.boundary");
}

TEST(CodecPolicy, RefusesWhatNoKeyTakes) {
  for (const auto& [key, value] : {std::pair{"center", "maybe"}, {"self_check", ""}, {"promote_k", ""}, {"promote_v", ""}, {"boundary", "-1"}, {"boundary", "2x"}, {"boundary", "99999999999"},
                                   {"boundary", ""}, {"prefill", "often"}}) {
    Options options{{key, value}};
    const auto policy = take_policy(options, "tq3");
    ASSERT_FALSE(policy) << key << "=" << value;
    EXPECT_EQ(policy.status().code(), Code::invalid_argument);
    EXPECT_NE(policy.status().message().find(std::string("kv.options.") + key), std::string::npos) << policy.status().message();
  }
}

}  // namespace
}  // namespace turbo::kv
