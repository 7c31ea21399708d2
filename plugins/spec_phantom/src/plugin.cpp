#include "phantom.h"

namespace {

constexpr const char* kOptions = R"({
  "ghosts": {"type": "int", "default": 1, "min": 1, "max": 8,
             "doc": "ways of drafting that are merged, and the most threads that draft ahead; they use only CPUs that the target leaves idle"},
  "buffers": {"type": "int", "default": 2, "min": 1, "max": 4, "doc": "packs of four finished drafts that each thread keeps ready"},
  "max_slots": {"type": "int", "default": 16, "min": 2, "max": 64, "doc": "largest draft, root included"},
  "max_trie_depth": {"type": "int", "default": 18, "min": 2, "max": 256, "doc": "longest token sequence that the corpus remembers"},
  "match_type": {"type": "string", "default": "BFS", "enum": ["BFS", "PROB"], "doc": "continuations by recency or by frequency"},
  "min_bfs_breadth": {"type": "int", "default": 1, "min": 1, "max": 64, "doc": "fewest children of a draft node"},
  "max_bfs_breadth": {"type": "int", "default": 10, "min": 1, "max": 64, "doc": "most children of a draft node"},
  "capacity": {"type": "int", "default": 10000000, "min": 3, "max": 1000000000, "doc": "nodes that the corpus may hold, 32 bytes each"}
})";

}  // namespace

TURBO_PLUGIN("dev.turbo.spec_phantom", "PHANTOM drafter", "0.1.0", "turbo", "Apache-2.0",
             turbo::component<turbo::phantom::Phantom>(TURBO_KIND_DRAFTER, "phantom", TURBO_TIER_CPU, kOptions))
