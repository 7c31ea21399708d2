// Tree ops of the hip tier, through the sampler's table, on fibers.
#pragma once

#include <turbo/abi/draft/verify_device.h>
#include <turbo/kernel/tree_ops.hpp>

#include <algorithm>
#include <cmath>

#include "sampler_tier.h"

namespace turbo::tree_ops {

struct TreeTier {
  static TreeTier& get() {
    static TreeTier tier;
    return tier;
  }
  static constexpr int rounds(int wanted) { return wanted > 10000 ? 500 : wanted > 250 ? 40 : wanted / 20; }

  const turbo_tree_ops* table() const { return table_; }
  void* self() const { return sampler_.component.self(); }
  void build(const turbo_tree_build& a) { call([&](turbo_error* e) { return table_->build(self(), &a, e); }); }
  void link(const turbo_tree_links& a) { call([&](turbo_error* e) { return table_->link(self(), &a, e); }); }
  void verify_greedy(const turbo_tree_walk& walk, const int64_t* target) { call([&](turbo_error* e) { return table_->verify_greedy(self(), &walk, target, e); }); }
  void verify_coins(const turbo_tree_walk& walk, const turbo_tree_coins& coins) { call([&](turbo_error* e) { return table_->verify_coins(self(), &walk, &coins, e); }); }
  void pack_bits(const uint8_t* x, const uint64_t* in, uint32_t n, const uint64_t* out, uint8_t* y) {
    const auto* ops = sampler_.component.interface<turbo_tree_ops_device>(TURBO_TREE_OPS_DEVICE_DRAFT);
    uint64_t bytes = 0;
    for (uint32_t b = 0; b < n; ++b) bytes = std::max(bytes, out[b] + (in[b + 1] - in[b] + 7) / 8);
    FiberDevice& device = sampler_.device;
    uint8_t *const from = device.upload(std::vector<uint8_t>(x, x + in[n])), *const to = device.upload(std::vector<uint8_t>(y, y + bytes));
    uint64_t *const in_at = device.upload(std::vector<uint64_t>(in, in + n + 1)), *const out_at = device.upload(std::vector<uint64_t>(out, out + n));
    call([&](turbo_error* e) { return ops->pack_bits(self(), device.api()->stream, from, in_at, n, out_at, to, e); });
    const std::vector<uint8_t> packed = device.download(to, bytes);
    std::copy(packed.begin(), packed.end(), y);
    for (void* pointer : std::initializer_list<void*>{from, to, in_at, out_at}) device.release(pointer);
  }

 private:
  template <typename Call>
  static void call(Call&& body) {
    turbo_error error{};
    error.struct_size = sizeof error;
    if (const turbo_status status = body(&error); status != TURBO_OK) throw Failure(status, error.message);
  }
  fake::Host host_;
  SamplerTier sampler_{host_};
  const turbo_tree_ops* table_ = sampler_.component.interface<turbo_tree_ops>(TURBO_TREE_OPS_DRAFT);
};

}  // namespace turbo::tree_ops
