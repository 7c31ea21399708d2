// Lists of memory nodes, and that spreading a block leaves it usable.
#include "numa.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

namespace turbo::arch_cpu {

TEST(Numa, NodeListsAreReadOrRefusedWhole) {
  using Nodes = std::vector<uint32_t>;
  EXPECT_EQ(parse_node_list("0"), Nodes({0}));
  EXPECT_EQ(parse_node_list("0-2,5\n"), Nodes({0, 1, 2, 5}));
  for (const char* wrong : {"", "x", "3-1", "0-", "0-1-2", "1 2", "-1", "4000", "0-99999999999"})
    EXPECT_EQ(parse_node_list(wrong), Nodes()) << wrong;
}

TEST(Numa, ThisMachineHasMemorySomewhere) { EXPECT_FALSE(memory_nodes().empty()); }

TEST(Numa, ASpreadBlockIsUsable) {
  constexpr size_t kBytes = 4 << 20;
  void* block = std::aligned_alloc(2 << 20, kBytes);
  ASSERT_NE(block, nullptr);
  spread_over_nodes(static_cast<char*>(block) + 100, kBytes - 100);
  std::memset(block, 7, kBytes);
  EXPECT_EQ(static_cast<char*>(block)[kBytes - 1], 7);
  std::free(block);
}

}  // namespace turbo::arch_cpu
