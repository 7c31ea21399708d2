// Kernels of tree verification.
#include <turbo/kernel/gpu/tree_ops.hpp>

using namespace turbo::gpu;

TB_KERNEL(tree_build, TreeBuildArgs, TURBO_TREE_MAX_SLOTS) { tree_build_body(args); }
TB_KERNEL(tree_link, TreeLinkArgs, TURBO_TREE_MAX_SLOTS) { tree_link_body(args); }
TB_KERNEL(tree_greedy, TreeGreedyArgs, TURBO_TREE_MAX_SLOTS) { tree_greedy_body(args); }
TB_KERNEL(tree_coins, TreeCoinsArgs, kTreeThreads) { tree_coins_body(args); }
TB_KERNEL(segment_packbits, PackBitsArgs, kTreeThreads) { pack_bits_body(args); }
