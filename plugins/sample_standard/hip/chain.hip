// Kernels of chain drafting and verification.
#include <turbo/kernel/gpu/chain.hpp>

using namespace turbo::gpu;

TB_KERNEL(draft_topk1_postprocess, DraftStepArgs, kArgmaxThreads) { draft_step_body(args); }
TB_KERNEL(greedy_chain_verify, ChainVerifyArgs, kArgmaxThreads) { chain_verify_body(args); }
TB_KERNEL(build_chain_tree, ChainTreeArgs, 128) { chain_tree_body(args); }
TB_KERNEL(chain_commit, ChainCommitArgs, 128) { chain_commit_body(args); }
