#include "base/nearest.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace turbo {

TEST(NearestName, SuggestsTransposedAndMisspeltNames) {
  const std::vector<std::string> names{"top_k", "top_p", "temperature", "draft_tokens"};
  EXPECT_EQ(nearest_name("tpo_k", names), "top_k");
  EXPECT_EQ(nearest_name("temprature", names), "temperature");
  EXPECT_EQ(nearest_name("draft-tokens", names), "draft_tokens");
}

TEST(NearestName, SaysNothingWhenNothingIsClose) {
  const std::vector<std::string> names{"top_k"};
  EXPECT_EQ(nearest_name("zebra_crossing", names), "");
  EXPECT_EQ(nearest_name(std::string(100000, 'a'), names), "");
}

}  // namespace turbo
