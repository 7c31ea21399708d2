// A whole step in one launch: a block on every compute unit goes through the stages in order, its share of each, and waits
// only for the mail that a stage reads. All blocks must be resident.
//
// Whoever waits, waits for stages before its own, whose blocks wait for nothing later; so every wait ends. A block's own
// earlier outputs (the residual of a later stage) are in memory, for the units of two such stages are dealt alike.
#pragma once

// In such a file attention's waves are a part of the block, so this comes before any other header of attention.
#if defined(TB_ATTEND_WHOLE)
#error "turbo/kernel/gpu/step.hpp comes before other headers of kernels"
#endif
#define TB_STEP 1

#include <turbo/kernel/gpu/attend_mail.hpp>
#include <turbo/kernel/gpu/matvec_mail.hpp>

namespace turbo::gpu {

constexpr uint32_t kStageWords = sizeof(Stage) / 16;
struct StepShared {
  // This stage and the next, in turn.
  union {
    Stage stage[2];
    Words4 words[2][kStageWords];
  };
  Post post;
  uint32_t live, live_logits;
};
TB_DEVICE StepShared& step_shared() {
  TB_SHARED(StepShared, shared);
  return shared;
}

/// 16 bytes to shared memory, which are there after copies_done() of the thread.
#if defined(TB_NVIDIA)
TB_DEVICE void copy_ahead(Words4* to, const Words4* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))), "l"(from) : "memory");
}
TB_DEVICE void copies_done() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#else
TB_DEVICE void copy_ahead(Words4* to, const Words4* from) { q1::store_words(to, q1::load_words(from)); }
TB_DEVICE void copies_done() {}
#endif

/// In trials: wait a while that differs from block to block and stage to stage; false: the block stops here.
TB_DEVICE bool try_patience(const StepArgs& args, uint32_t tag, uint32_t stage) {
  const StepTrial& trial = args.trial;
  if (trial.delays) {
    uint32_t n = (trial.delays + block_x() * 0x9e3779b9u + stage * 0x85ebca6bu) * 0xc2b2ae35u >> 24;
    for (; n > 0; --n) pause();
  }
  return !(trial.stop_stage == stage + 1 && trial.stop_block == block_x() + 1 && tag >= trial.stop_tag);
}

TB_DEVICE uint64_t* moments_of(const StepArgs& args, uint32_t stage) {
  return args.moments ? args.moments + (uint64_t{stage} * grid_x() + block_x()) * kStepMoments : nullptr;
}

template <uint32_t R>
TB_PART void product_stage(uint32_t place, uint64_t* moments) {
  TB_DYNAMIC_SHARED(uint8_t, shared);
  const StepShared& sh = step_shared();
  const Stage& stage = sh.stage[place];
  const q1::Product& p = stage.product;
  const uint32_t n_live = stage.logits ? sh.live_logits : sh.live, block = block_x();
  if (block >= p.n_units) return;
  const q1::StageIo io{stage.mail, sh.post, stage.keeps_floats != 0, stage.keeps_bytes != 0, n_live, moments};
  TB_NO_UNROLL
  for (uint32_t pass = 0; pass < stage.passes && pass * R < n_live; ++pass) {
    if (pass) sync_block();
    q1::matvec<R, q1::kStepHeld>(p, {block, grid_x(), stage.teams, stage.shape}, pass * R, shared, io);
  }
}

/// By the first kAttendWaves waves.
template <class K, class V, uint32_t L, uint32_t NQ>
TB_PART void attention_stage(uint32_t place, uint64_t* moments) {
  using Shared = AttendShared<K, V, L, NQ>;
  TB_SHARED(Shared, of_attention);
  const StepShared& sh = step_shared();
  const Stage& stage = sh.stage[place];
  const MailRows rows{stage.mail, sh.post, stage.keeps_floats != 0, stage.keeps_bytes != 0, moments};
  const uint32_t n_heads = stage.grid[0], n_chunks = stage.grid[1], n = n_heads * n_chunks * stage.grid[2];
  const uint32_t n_blocks = grid_x(), first = n_blocks - 1 - block_x();
  TB_NO_UNROLL
  for (uint32_t t = first; t < n; t += n_blocks) {
    if (t != first) sync_attend();
    const uint32_t head = t % n_heads, rest = t / n_heads;
    attend_tile<K, V, L, NQ>(stage.attend, {head, rest % n_chunks, rest / n_chunks, n_heads, n_chunks}, of_attention, rows);
  }
}

/// Dynamic shared memory: the most that a product's matvec_shared_bytes is.
template <uint32_t R, class K, class V, uint32_t L, uint32_t NQ>
TB_DEVICE void step_body(const StepArgs& args) {
  StepShared& sh = step_shared();
  const Words4* const stages = reinterpret_cast<const Words4*>(args.stages);
  // The last waves bring the next stage's arguments, for they have the least to do.
  const uint32_t n_stages = args.n_stages, word = threads() - 1 - thread();
  if (word < kStageWords) sh.words[0][word] = stages[word];
  if (thread() == 0) {
    sh.post = {args.counts[kTagWord], args.patience, args.stopped, args.report};
    sh.live = args.counts[0];
    sh.live_logits = args.counts[2];
#if !defined(TB_NVIDIA)
    attend_barrier() = {0, 0};
#endif
  }
  sync_block();
  TB_NO_UNROLL
  for (uint32_t s = 0; s < n_stages; ++s) {
    const uint32_t place = s % 2;
    if (word < kStageWords && s + 1 < n_stages) copy_ahead(&sh.words[place ^ 1][word], stages + uint64_t{s + 1} * kStageWords + word);
    if (!try_patience(args, sh.post.tag, s)) return;
    uint64_t* const moments = moments_of(args, s);
    if (moments && thread() == 0) moments[0] = clock_now();
    if (sh.stage[place].kind == stage_product) product_stage<R>(place, moments);
    else if (wave() < kAttendWaves) attention_stage<K, V, L, NQ>(place, moments);
    copies_done();
    sync_block();
    if (moments && thread() == 0) moments[3] = clock_now();
  }
}

}  // namespace turbo::gpu

#define TB_STEP_KERNEL(name, R, K, V, L, NQ)                                                   \
  TB_RESIDENT_KERNEL(name, turbo::gpu::StepArgs, turbo::gpu::kStepThreads) {                   \
    turbo::gpu::step_body<R, K, V, L, NQ>(args);                                               \
  }
