// Where large blocks lie on machines with several memory nodes. [load]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace turbo::arch_cpu {

/// Node numbers of a kernel list such as "0-2,5"; empty when it is none.
std::vector<uint32_t> parse_node_list(const std::string& text);
/// Memory nodes of this machine, as the system lists them; {0} where it does not.
std::vector<uint32_t> memory_nodes();
/// Spread the pages of a block that nobody touched yet evenly over the nodes: every thread reads all weights and all of
/// the cache, so no node's memory may become the one that all wait for. Nothing on machines with one node; a
/// refusal by the system changes speed only.
void spread_over_nodes(void* data, uint64_t bytes);

}  // namespace turbo::arch_cpu
