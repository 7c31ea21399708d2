// Chain and tree ops of the hip tier: tables over kernels. Engine thread.
#pragma once

#include "device.h"

#include <turbo/abi/draft/verify_device.h>

#include <vector>

namespace turbo::sample_standard {

class DeviceVerifier {
 public:
  explicit DeviceVerifier(const turbo_device* device);  // throws Failure

  static uint64_t scratch_bytes(uint32_t rows);
  void reset(turbo_stream* stream, void* scratch, uint32_t rows) const;
  void draft_step(turbo_stream* stream, const turbo_draft_step& a) const;
  void verify(turbo_stream* stream, const turbo_chain_verify& a) const;
  void build_tree(turbo_stream* stream, const turbo_chain_tree& a) const;
  void commit(turbo_stream* stream, const turbo_chain_commit& a) const;
  void simulated_accept(turbo_stream* stream, const turbo_simulated_accept& a) const;

  // Device arrays.
  void build(turbo_stream* stream, const turbo_tree_build& a, uint32_t* malformed) const;
  void link(turbo_stream* stream, const turbo_tree_links& a) const;
  void verify_greedy(turbo_stream* stream, const turbo_tree_walk& walk, const int64_t* target, uint32_t* malformed) const;
  void verify_coins(turbo_stream* stream, const turbo_tree_walk& walk, const turbo_tree_coins& coins, uint32_t* malformed) const;
  void pack_bits(turbo_stream* stream, const uint8_t* x, const uint64_t* in_offsets, uint32_t n_segments, const uint64_t* out_offsets, uint8_t* y) const;

  // Host arrays: copied there and back, with a wait.
  void build(const turbo_tree_build& a);
  void link(const turbo_tree_links& a);
  void verify_greedy(const turbo_tree_walk& walk, const int64_t* target);
  void verify_coins(const turbo_tree_walk& walk, const turbo_tree_coins& coins);

 private:
  class Staging;

  Kernels kernels_;
  Buffer staged_, host_staged_;
};

/// The tables; T has `DeviceVerifier& verifier()` and is what `self` points to.
template <typename T>
const void* verifier_interface(std::string_view id);

}  // namespace turbo::sample_standard

#include "verify_tables.inl"
