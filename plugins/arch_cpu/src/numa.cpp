#include "numa.h"

#include <fstream>
#include <sstream>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace turbo::arch_cpu {
namespace {

constexpr uint32_t kMostNodes = 1024;
constexpr uint64_t kPage = 4096;

}  // namespace

std::vector<uint32_t> parse_node_list(const std::string& text) {
  std::vector<uint32_t> nodes;
  std::istringstream list(text);
  for (std::string part; std::getline(list, part, ',');) {
    std::istringstream range(part);
    uint32_t first, last;
    if (!(range >> first)) return {};
    last = first;
    if (char dash; range >> dash && (dash != '-' || !(range >> last))) return {};
    if (std::string rest; range >> rest) return {};
    if (last < first || last >= kMostNodes) return {};
    for (uint32_t node = first; node <= last; ++node) nodes.push_back(node);
  }
  return nodes;
}

std::vector<uint32_t> memory_nodes() {
  std::ifstream file("/sys/devices/system/node/has_memory");
  std::string line;
  std::getline(file, line);
  std::vector<uint32_t> nodes = parse_node_list(line);
  return nodes.empty() ? std::vector<uint32_t>{0} : nodes;
}

void spread_over_nodes([[maybe_unused]] void* data, [[maybe_unused]] uint64_t bytes) {
#if defined(__linux__) && defined(SYS_mbind)
  static const std::vector<uint32_t> nodes = memory_nodes();
  if (nodes.size() < 2) return;
  constexpr int kInterleave = 3;  // MPOL_INTERLEAVE
  constexpr uint32_t kBits = 8 * sizeof(unsigned long);
  unsigned long mask[kMostNodes / kBits + 1] = {};
  for (const uint32_t node : nodes) mask[node / kBits] |= 1ul << node % kBits;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + kPage - 1) / kPage * kPage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / kPage * kPage;
  if (begin < end) syscall(SYS_mbind, begin, end - begin, kInterleave, mask, kMostNodes, 0u);
#endif
}

}  // namespace turbo::arch_cpu
