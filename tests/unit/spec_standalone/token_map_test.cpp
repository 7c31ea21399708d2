#include "token_map.h"

#include <gtest/gtest.h>
#include <turbo/plugin.hpp>

#include <fstream>

#include "support/temp_dir.h"

namespace turbo::spec_standalone {
namespace {

class TokenMap : public ::testing::Test {
 protected:
  std::vector<int32_t> read(const std::string& text) {
    const std::string path = (dir.path() / "map").string();
    std::ofstream(path, std::ios::binary) << text;
    return read_token_map(path, 100);
  }
  std::string refusal(const std::string& text) {
    try {
      read(text);
    } catch (const Failure& failure) {
      EXPECT_FALSE(failure.hint.empty());
      return failure.message.substr(failure.message.find("map", dir.path().string().size()) + 3);
    }
    return "read";
  }
  turbo::testing::TempDir dir;
};

TEST_F(TokenMap, IsTextOrAListOfIds) {
  const std::vector<int32_t> ids{0, 7, 99};
  EXPECT_EQ(read("7\n0\n99\n"), ids);
  EXPECT_EQ(read("# hot tokens\n[99, 7, 7,\r\n 0]"), ids);
  EXPECT_EQ(read("0\t7 99"), ids);
}

TEST_F(TokenMap, WhatIsNoIdIsShownWithItsPlace) {
  EXPECT_EQ(refusal("1\n100\n"), ", line 2, column 1: expected a token id below 100 but found '100'");
  EXPECT_EQ(refusal("1\n2\n  -1\n"), ", line 3, column 3: expected a token id below 100 but found '-1'");
  EXPECT_EQ(refusal("4294967297"), ", line 1, column 1: expected a token id below 100 but found '4294967297'");
  EXPECT_EQ(refusal("18446744073709551617"), ", line 1, column 1: expected a token id below 100 but found '18446744073709551617'");
  EXPECT_EQ(refusal("1.5"), ", line 1, column 1: expected a token id below 100 but found '1.5'");
  EXPECT_EQ(refusal(std::string("1 \0 2", 5)), ", line 1, column 3: expected a token id below 100 but found '\\x00'");
  EXPECT_EQ(refusal("7, " + std::string(30, 'a')), ", line 1, column 4: expected a token id below 100 but found '" + std::string(24, 'a') + "...'");
  EXPECT_EQ(refusal("1 # 2"), ", line 1, column 3: expected a token id below 100 but found '#'");
  EXPECT_EQ(refusal(""), ": holds no token id");
  EXPECT_EQ(refusal("# 1\n"), ": holds no token id");
  EXPECT_EQ(refusal("# 1"), ": holds no token id");
  EXPECT_EQ(refusal("[]"), ": holds no token id");
  EXPECT_THROW(read_token_map((dir.path() / "absent").string(), 100), Failure);
  EXPECT_THROW(read_token_map(dir.path().string(), 100), Failure);
}

// A file that was cut off must not pass for a shorter list.
TEST_F(TokenMap, ListsAreWhole) {
  EXPECT_EQ(refusal("[1,"), ", line 1, column 4: expected a token id below 100 but found the end of the file");
  EXPECT_EQ(refusal("[1"), ", line 1, column 3: expected a comma or the list's end, ] but found the end of the file");
  EXPECT_EQ(refusal("["), ", line 1, column 2: expected a token id below 100 but found the end of the file");
  EXPECT_EQ(refusal("# hot\n[1,\n2\n"), ", line 4, column 1: expected a comma or the list's end, ] but found the end of the file");
  EXPECT_EQ(refusal("[1,]"), ", line 1, column 4: expected a token id below 100 but found ']'");
  EXPECT_EQ(refusal("[1 2]"), ", line 1, column 4: expected a comma or the list's end, ] but found '2'");
  EXPECT_EQ(refusal("[[1]]"), ", line 1, column 2: expected a token id below 100 but found '['");
  EXPECT_EQ(refusal("[1] 2"), ", line 1, column 5: expected nothing behind the list but found '2'");
  EXPECT_EQ(refusal("1, 2]"), ", line 1, column 5: expected a token id below 100 but found ']'");
  EXPECT_EQ(read("[1]\n# of turbo-mini\n"), std::vector<int32_t>{1});
}

}  // namespace
}  // namespace turbo::spec_standalone
