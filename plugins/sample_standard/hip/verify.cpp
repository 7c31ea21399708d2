#include "verify.h"

#include <turbo/kernel/gpu/chain.hpp>
#include <turbo/kernel/gpu/tree_ops.hpp>
#include <turbo/kernel/tree_ops.hpp>

#include <algorithm>
#include <bit>
#include <cstring>

extern "C" const turbo_code_object turbo_kernels_chain[];
extern "C" const uint32_t turbo_n_kernels_chain;
extern "C" const turbo_code_object turbo_kernels_tree[];
extern "C" const uint32_t turbo_n_kernels_tree;
#if defined(TURBO_SIMULATED_ACCEPT)
extern "C" const turbo_code_object turbo_kernels_simulate[];
extern "C" const uint32_t turbo_n_kernels_simulate;
#endif

namespace turbo::sample_standard {
namespace {

// In the order they are attached in.
enum Kernel : uint32_t { draft_step_kernel, chain_verify, chain_tree, chain_commit, tree_build, tree_link, tree_greedy, tree_coins, pack_bits_kernel, simulated };

constexpr uint32_t kRowThreads = 128;  // as the kernels are bounded
uint64_t blocks_of(uint64_t n, uint32_t threads) { return (n + threads - 1) / threads; }

struct ScratchLayout {
  Layout layout;
  uint64_t arrivals, row_nan, keys;  // of a verification; a draft step's rows lie from 0 on
  explicit ScratchLayout(uint32_t rows) {
    layout.add<gpu::ArgmaxRow>(rows);
    arrivals = layout.add<uint32_t>(1);
    row_nan = layout.add<uint32_t>(rows);
    keys = layout.add<uint64_t>(rows);
  }
};

void check_vocab(uint32_t vocab) {
  if (vocab == 0 || vocab > INT32_MAX) throw Failure(TURBO_INVALID_ARGUMENT, "chain op: a vocabulary of " + std::to_string(vocab));
}
void check_walk(const turbo_tree_walk& walk) { tree_ops::detail::check_walk(walk); }

}  // namespace

DeviceVerifier::DeviceVerifier(const turbo_device* device) : staged_(device, TURBO_MEMORY_DEVICE), host_staged_(device, TURBO_MEMORY_PINNED) {
  kernels_.attach(device, {
      {turbo_kernels_chain, turbo_n_kernels_chain, {"draft_topk1_postprocess", "greedy_chain_verify", "build_chain_tree", "chain_commit"}},
      {turbo_kernels_tree, turbo_n_kernels_tree, {"tree_build", "tree_link", "tree_greedy", "tree_coins", "segment_packbits"}},
#if defined(TURBO_SIMULATED_ACCEPT)
      {turbo_kernels_simulate, turbo_n_kernels_simulate, {"simulated_accept"}},
#endif
  });
}

uint64_t DeviceVerifier::scratch_bytes(uint32_t rows) { return ScratchLayout(rows).layout.bytes(); }
void DeviceVerifier::reset(turbo_stream* stream, void* scratch, uint32_t rows) const { kernels_.fill(stream, scratch, 0, scratch_bytes(rows)); }

void DeviceVerifier::draft_step(turbo_stream* stream, const turbo_draft_step& a) const {
  if (a.rows == 0) return;
  check_vocab(a.vocab);
  const uint32_t splits = gpu::argmax_splits(a.vocab, a.rows);
  const gpu::DraftStepArgs args{gpu::logit_rows(a.logits, a.stride, a.vocab, a.rows, splits), static_cast<gpu::ArgmaxRow*>(a.scratch), a.token, a.probability,
                                a.draft_tokens, a.draft_stride, a.column, 0, a.first_tokens, a.positions, a.target_id, a.nan};
  kernels_.launch(stream, draft_step_kernel, uint64_t{a.rows} * splits, gpu::kArgmaxThreads, args);
}

void DeviceVerifier::verify(turbo_stream* stream, const turbo_chain_verify& a) const {
  if (a.n_requests == 0 || a.width == 0) return;
  check_vocab(a.vocab);
  if (uint64_t{a.n_requests} * a.width > INT32_MAX) throw Failure(TURBO_INVALID_ARGUMENT, "chain op: too many rows");
  const uint32_t rows = a.n_requests * a.width, splits = gpu::argmax_splits(a.vocab, rows);
  const ScratchLayout at(rows);
  char* const scratch = static_cast<char*>(a.scratch);
  const gpu::ChainVerifyArgs args{gpu::logit_rows(a.logits, a.stride, a.vocab, rows, splits),
                                  {reinterpret_cast<uint32_t*>(scratch + at.arrivals), reinterpret_cast<uint32_t*>(scratch + at.row_nan), reinterpret_cast<uint64_t*>(scratch + at.keys)},
                                  a.candidates, a.n_requests, a.width, a.predict, a.accept_index, a.num_correct, a.accept_lens, a.target, a.nan};
  kernels_.launch(stream, chain_verify, uint64_t{rows} * splits, gpu::kArgmaxThreads, args);
}

void DeviceVerifier::build_tree(turbo_stream* stream, const turbo_chain_tree& a) const {
  const gpu::ChainTreeArgs args{a.n_requests, a.width, a.seq, a.bonus, a.drafts, a.draft_stride, a.tokens, a.positions, a.retrieve_index, a.next_token, a.next_sibling,
                                a.mask, a.slot_table, a.slot_stride, a.slots, a.sections, a.prefix_lens, a.extend_lens, a.post_lens, a.extend_positions, a.start_locs};
  kernels_.launch(stream, chain_tree, blocks_of(uint64_t{a.n_requests} * a.width, kRowThreads), kRowThreads, args);
}

void DeviceVerifier::commit(turbo_stream* stream, const turbo_chain_commit& a) const {
  const gpu::ChainCommitArgs args{a.n_requests, a.width, a.predict, a.accept_index, a.accept_lens, a.seq, a.slot, a.relay_size, 0, a.bonus, a.new_lens, a.select, a.relay_lens,
                                  a.accept_offsets};
  kernels_.launch(stream, chain_commit, blocks_of(a.n_requests, kRowThreads), kRowThreads, args);
}

void DeviceVerifier::simulated_accept(turbo_stream* stream, const turbo_simulated_accept& a) const {
#if !defined(TURBO_SIMULATED_ACCEPT)
  throw Failure(TURBO_UNSUPPORTED, "simulated acceptance is in builds for measurements alone");
#endif
  const gpu::SimulatedAcceptArgs args{a.n_requests, a.width, a.length, a.candidates, a.target, a.fixed_token, 0, a.predict, a.accept_index, a.num_correct, a.accept_lens};
  kernels_.launch(stream, simulated, blocks_of(uint64_t{a.n_requests} * a.width, kRowThreads), kRowThreads, args);
}

void DeviceVerifier::build(turbo_stream* stream, const turbo_tree_build& a, uint32_t* malformed) const {
  tree_ops::detail::check_build(a);
  kernels_.launch(stream, tree_build, a.n_requests, TURBO_TREE_MAX_SLOTS, gpu::TreeBuildArgs{a, malformed});
}
void DeviceVerifier::link(turbo_stream* stream, const turbo_tree_links& a) const {
  tree_ops::detail::check_slots(a.n_requests, a.n_slots);
  kernels_.launch(stream, tree_link, a.n_requests, TURBO_TREE_MAX_SLOTS, gpu::TreeLinkArgs{a});
}
void DeviceVerifier::verify_greedy(turbo_stream* stream, const turbo_tree_walk& walk, const int64_t* target, uint32_t* malformed) const {
  check_walk(walk);
  kernels_.launch(stream, tree_greedy, blocks_of(walk.n_requests, TURBO_TREE_MAX_SLOTS), TURBO_TREE_MAX_SLOTS, gpu::TreeGreedyArgs{walk, target, malformed});
}
void DeviceVerifier::verify_coins(turbo_stream* stream, const turbo_tree_walk& walk, const turbo_tree_coins& coins, uint32_t* malformed) const {
  check_walk(walk);
  tree_ops::detail::check_coins(coins);
  kernels_.launch(stream, tree_coins, walk.n_requests, gpu::kTreeThreads, gpu::TreeCoinsArgs{walk, coins, malformed});
}
void DeviceVerifier::pack_bits(turbo_stream* stream, const uint8_t* x, const uint64_t* in_offsets, uint32_t n_segments, const uint64_t* out_offsets, uint8_t* y) const {
  constexpr uint32_t kBlocks = 4;
  kernels_.launch(stream, pack_bits_kernel, uint64_t{n_segments} * kBlocks, gpu::kTreeThreads, gpu::PackBitsArgs{x, in_offsets, out_offsets, y, n_segments, kBlocks});
}

/// Host arrays of one call, on their way to the device and back: add them all, then up(), the launch, then down().
class DeviceVerifier::Staging {
 public:
  explicit Staging(DeviceVerifier& owner) : owner_(owner) {}
  /// Copied there, and back when it is not const. The address is good after up().
  template <typename T>
  void add(T*& array, uint64_t n) {
    if (!array) return;
    using Plain = std::remove_const_t<T>;
    parts_.push_back({const_cast<Plain*>(array), layout_.add<Plain>(n), n * sizeof(T), !std::is_const_v<T>});
    fixes_.push_back({const_cast<void*>(static_cast<const void*>(&array)), parts_.back().offset});
  }
  void up() {
    const uint64_t room = std::bit_ceil(std::max<uint64_t>(layout_.bytes(), 4096));
    if (!owner_.staged_.grow(room) || !owner_.host_staged_.grow(room)) throw Failure(TURBO_RESOURCE_EXHAUSTED, "tree ops: no memory for " + std::to_string(room) + " bytes");
    for (const Part& part : parts_) std::memcpy(owner_.host_staged_.at<char>(part.offset), part.host, part.bytes);
    for (const auto& [place, offset] : fixes_) {
      const void* const to = owner_.staged_.at<char>(offset);
      std::memcpy(place, &to, sizeof to);
    }
    copy(TURBO_COPY_TO_DEVICE);
  }
  void down() {
    copy(TURBO_COPY_TO_HOST);
    owner_.kernels_.sync(stream());
    for (const Part& part : parts_)
      if (part.back) std::memcpy(part.host, owner_.host_staged_.at<char>(part.offset), part.bytes);
  }
  turbo_stream* stream() const { return owner_.kernels_.device()->stream; }

 private:
  struct Part {
    void* host;
    uint64_t offset, bytes;
    bool back;
  };
  void copy(uint32_t direction) {
    void *device = owner_.staged_.at<void>(), *host = owner_.host_staged_.at<void>();
    const bool up = direction == TURBO_COPY_TO_DEVICE;
    owner_.kernels_.copy(stream(), up ? device : host, up ? host : device, layout_.bytes(), direction);
  }
  DeviceVerifier& owner_;
  Layout layout_;
  std::vector<Part> parts_;
  std::vector<std::pair<void*, uint64_t>> fixes_;
};

namespace {

void refuse_malformed(const std::vector<uint32_t>& malformed) {
  for (size_t b = 0; b < malformed.size(); ++b)
    if (malformed[b]) throw Failure(TURBO_INVALID_ARGUMENT, "tree ops: request " + std::to_string(b) + ": no tree, or ids out of range");
}

template <typename Staging>
void add_walk(Staging& staging, turbo_tree_walk& walk) {
  const uint64_t slots = uint64_t{walk.n_requests} * walk.n_slots;
  staging.add(walk.candidates, slots);
  staging.add(walk.retrieve_index, slots);
  staging.add(walk.next_token, slots);
  staging.add(walk.next_sibling, slots);
  staging.add(walk.predicts, slots);
  staging.add(walk.accept_index, uint64_t{walk.n_requests} * walk.n_columns);
  staging.add(walk.n_accepted, walk.n_requests);
}

}  // namespace

void DeviceVerifier::build(const turbo_tree_build& args) {
  tree_ops::detail::check_build(args);
  tree_ops::detail::check_mask(args);
  turbo_tree_build a = args;
  const uint64_t slots = uint64_t{a.n_requests} * a.n_slots;
  std::vector<uint32_t> malformed(a.n_requests);
  uint32_t* malformed_at = malformed.data();
  Staging staging(*this);
  if (a.depth > 1) staging.add(a.parent_list, uint64_t{a.n_requests} * (uint64_t{a.topk} * (a.depth - 1) + 1));
  staging.add(a.selected, slots - a.n_requests);
  staging.add(a.prefix_len, a.n_requests);
  auto* mask = static_cast<uint8_t*>(a.mask);
  staging.add(mask, a.mask_bytes);
  staging.add(a.positions, slots);
  staging.add(a.retrieve_index, slots);
  staging.add(a.next_token, slots);
  staging.add(a.next_sibling, slots);
  staging.add(a.n_orphans, a.n_requests);
  staging.add(malformed_at, a.n_requests);
  staging.up();
  a.mask = mask;
  build(staging.stream(), a, malformed_at);
  staging.down();
  refuse_malformed(malformed);
}

void DeviceVerifier::link(const turbo_tree_links& args) {
  tree_ops::detail::check_slots(args.n_requests, args.n_slots);
  turbo_tree_links a = args;
  const uint64_t slots = uint64_t{a.n_requests} * a.n_slots;
  Staging staging(*this);
  staging.add(a.mask, slots * a.n_slots);
  staging.add(a.prefix_len, a.n_requests);
  staging.add(a.positions, slots);
  staging.add(a.retrieve_index, slots);
  staging.add(a.next_token, slots);
  staging.add(a.next_sibling, slots);
  staging.up();
  link(staging.stream(), a);
  staging.down();
}

void DeviceVerifier::verify_greedy(const turbo_tree_walk& walk, const int64_t* target) {
  check_walk(walk);
  turbo_tree_walk w = walk;
  std::vector<uint32_t> malformed(w.n_requests);
  uint32_t* malformed_at = malformed.data();
  Staging staging(*this);
  add_walk(staging, w);
  staging.add(target, uint64_t{w.n_requests} * w.n_slots);
  staging.add(malformed_at, w.n_requests);
  staging.up();
  verify_greedy(staging.stream(), w, target, malformed_at);
  staging.down();
  refuse_malformed(malformed);
}

void DeviceVerifier::verify_coins(const turbo_tree_walk& walk, const turbo_tree_coins& coins) {
  check_walk(walk);
  tree_ops::detail::check_coins(coins);
  turbo_tree_walk w = walk;
  turbo_tree_coins c = coins;
  const uint64_t slots = uint64_t{w.n_requests} * w.n_slots;
  std::vector<uint32_t> malformed(w.n_requests), failed(w.n_requests);
  uint32_t* malformed_at = malformed.data();
  c.failed = failed.data();
  Staging staging(*this);
  add_walk(staging, w);
  staging.add(c.coins, slots);
  staging.add(c.final_coin, w.n_requests);
  staging.add(c.target_probs, slots * c.vocabulary);
  staging.add(c.draft_probs, slots * c.vocabulary);
  staging.add(c.failed, w.n_requests);
  staging.add(malformed_at, w.n_requests);
  staging.up();
  verify_coins(staging.stream(), w, c, malformed_at);
  staging.down();
  refuse_malformed(malformed);
  for (uint32_t b = 0; b < w.n_requests; ++b) {
    if (coins.failed) coins.failed[b] = failed[b];
    else if (failed[b]) throw Failure(TURBO_INVALID_ARGUMENT, "tree ops: request " + std::to_string(b) + ": a probability is no number or negative");
  }
}

}  // namespace turbo::sample_standard
