// Which launches become stages of a step kernel, and the mail between them. No device, no kernel: addresses are numbers.
#include "step_list.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>

namespace turbo::arch_rdna2 {
namespace {

using gpu::Stage;
using gpu::q1::Product;

constexpr uint32_t kUnits = 12, kHidden = 256, kInner = 768, kHeads = 4, kKvHeads = 2, kHeadDim = 128, kRows = 1;
constexpr uint32_t kQ = kHeads * kHeadDim, kKv = kKvHeads * kHeadDim;

/// Launches of layers as the pack enqueues them, with buffers at made-up addresses, used again as the arena uses them.
class Layers {
 public:
  explicit Layers(uint32_t n) {
    for (uint32_t layer = 0; layer < n; ++layer) {
      product(kHidden, bytes(kBytesX, kHidden), {{kQ, kOutQ}, {kKv, kOutK}, {kKv, kOutV}});
      attention();
      product(kQ, bytes(kBytesA, kQ), {{kHidden, kX}}, true, bytes(kBytesO, kHidden));
      product(kHidden, bytes(kBytesO, kHidden), {{kInner, kGate}, {kInner, kUp}}, false, bytes(kBytesG, kInner), true);
      product(kInner, bytes(kBytesG, kInner), {{kHidden, kX}}, true, bytes(kBytesX, kHidden));
    }
    product(kHidden, bytes(kBytesX, kHidden), {{1000, kLogits}});
    at(launches.size() - 1).n_rows = counts() + 2;
  }

  static uint32_t* counts() { return reinterpret_cast<uint32_t*>(0x1000); }
  Product& at(size_t i) { return *reinterpret_cast<Product*>(launches[i].arguments.data()); }
  gpu::AttendArgs& attend(size_t i) { return *reinterpret_cast<gpu::AttendArgs*>(launches[i].arguments.data()); }
  std::vector<StageRun> runs() const { return find_stage_runs(launches, counts(), kUnits); }
  void foreign(size_t before) {
    hip::Enqueued launch = launches[before];
    launch.kernel = kernel("rdna2_norm");
    launches.insert(launches.begin() + static_cast<std::ptrdiff_t>(before), launch);
  }

  std::vector<hip::Enqueued> launches;

  enum : uint64_t { kX = 0x100000, kBytesX = 0x110000, kOutQ = 0x120000, kOutK = 0x130000, kOutV = 0x140000, kOutA = 0x150000, kBytesA = 0x160000,
                    kBytesO = 0x170000, kGate = 0x180000, kUp = 0x190000, kBytesG = 0x1a0000, kLogits = 0x1b0000 };

 private:
  static gpu::Q8Rows bytes(uint64_t base, uint64_t cols) { return gpu::q8_rows({reinterpret_cast<uint8_t*>(base), kRows}, cols); }

  turbo_kernel* kernel(const std::string& name) {
    turbo_kernel& kernel = kernels_[name];
    kernel.name = name;
    return &kernel;
  }
  template <class Args>
  void add(const std::string& name, const Args& args, uint32_t x, uint32_t y) {
    turbo_launch launch{};
    launch.grid_x = x;
    launch.grid_y = y;
    launch.grid_z = 1;
    const auto* const raw = reinterpret_cast<const uint8_t*>(&args);
    launches.push_back({kernel(name), launch, {raw, raw + sizeof args}});
  }
  void product(uint32_t cols, const gpu::Q8Rows& in, const std::vector<std::pair<uint32_t, uint64_t>>& outs, bool adds = false,
               const gpu::Q8Rows& out = {}, bool gated = false) {
    Product p{};
    p.n_groups = cols / 128;
    for (gpu::q1::Matrix& matrix : p.matrix) matrix.first_unit = gpu::q1::kNoUnit;
    for (const auto& [rows, to] : outs) {
      gpu::q1::Matrix& matrix = p.matrix[p.n_matrices++];
      matrix.rows = rows;
      matrix.out = reinterpret_cast<float*>(to);
      matrix.out_stride = rows;
      matrix.first_unit = p.n_units;
      p.n_units += static_cast<uint32_t>(gpu::q1::units_of(rows));
    }
    if (gated) p.n_units /= 2;
    p.n_rows = counts();
    p.codes = in.codes;
    p.scales = in.scales;
    p.max_rows = kRows;
    p.fuse = gated ? gpu::q1::fuse_silu : adds ? gpu::q1::fuse_add : gpu::q1::fuse_none;
    if (adds) {
      p.residual = reinterpret_cast<const float*>(kX);
      p.residual_stride = kHidden;
    }
    p.out_q8 = out;
    add("q1_matvec_1", p, 1, 1);
  }
  void attention() {
    gpu::AttendArgs args{};
    args.a.max_rows = kRows;
    args.a.max_chunks = 1;
    args.a.n_heads = kHeads;
    args.a.k.n_kv_heads = args.a.v.n_kv_heads = kKvHeads;
    args.a.k.head_dim = args.a.v.head_dim = kHeadDim;
    args.a.q = reinterpret_cast<const float*>(kOutQ);
    args.a.k_rows = reinterpret_cast<const float*>(kOutK);
    args.a.v_rows = reinterpret_cast<const float*>(kOutV);
    args.a.q_stride = kQ;
    args.a.k_stride = args.a.v_stride = kKv;
    args.a.out = reinterpret_cast<float*>(kOutA);
    args.a.out_stride = kQ;
    args.out_q8 = bytes(kBytesA, kQ);
    args.group = kHeads / kKvHeads;
    args.tile_heads = 2;
    args.tile_rows = args.head_tiles = 1;
    add("attend_f16_16_2", args, kKvHeads, 1);
  }

  std::map<std::string, turbo_kernel> kernels_;
};

TEST(StepList, WholeStepIsOneRun) {
  const auto runs = Layers(3).runs();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].first, 0u);
  EXPECT_EQ(runs[0].end, 16u);
  ASSERT_EQ(runs[0].stages.size(), 16u);
  EXPECT_EQ(runs[0].attend, (AttendKind{"f16", 16, 2}));
  EXPECT_TRUE(runs[0].stages.back().logits);
}

// K7: who reads mail reads what the stage before it sends; no two stages send to one box; boxes lie apart.
TEST(StepList, MailHasOneSenderAndComesFromTheStageBefore) {
  const StageRun run = Layers(3).runs().at(0);
  std::map<uint8_t*, std::pair<size_t, uint64_t>> senders;  // box: stage, bytes
  const auto sends = [&](size_t stage, uint8_t* box, uint64_t bytes) {
    if (!box) return;
    EXPECT_TRUE(senders.emplace(box, std::pair(stage, bytes)).second) << stage;
  };
  for (size_t s = 0; s < run.stages.size(); ++s) {
    const Stage& stage = run.stages[s];
    const std::set<uint8_t*> read = stage.kind == gpu::stage_attention ? std::set<uint8_t*>{stage.mail.floats[0], stage.mail.floats[1], stage.mail.floats[2]}
                                    : stage.mail.in                   ? std::set<uint8_t*>{stage.mail.in}
                                                                      : std::set<uint8_t*>{};
    EXPECT_EQ(read.empty(), s == 0);
    for (uint8_t* box : read) {
      ASSERT_TRUE(senders.count(box)) << s;
      EXPECT_EQ(senders[box].first + 1, s);
    }
    sends(s, stage.mail.out, uint64_t{stage.mail.out_stride} * kRows);
    if (stage.kind == gpu::stage_product)
      for (uint32_t i = 0; i < 3; ++i) sends(s, stage.mail.floats[i], uint64_t{stage.mail.float_stride[i]} * kRows);
  }
  uint64_t end = 1;
  for (const auto& [box, of] : senders) {
    EXPECT_GE(reinterpret_cast<uint64_t>(box), end);
    end = reinterpret_cast<uint64_t>(box) + of.second;
  }
  EXPECT_LE(end, run.mail_bytes + 1);
}

// K7: every unit of every product is some block's, and only one's.
TEST(StepList, UnitsAreDealtOnce) {
  const StageRun run = Layers(1).runs().at(0);
  for (const Stage& stage : run.stages) {
    if (stage.kind != gpu::stage_product) continue;
    uint32_t units = 0;
    for (uint32_t block = 0; block < kUnits; ++block) {
      const uint32_t own = stage.shape.units_each + (block < stage.shape.units_more ? 1 : 0);
      units += own;
      EXPECT_LE(own ? block + (own - 1) * kUnits + 1 : 0, stage.product.n_units);
    }
    EXPECT_EQ(units, stage.product.n_units);
  }
}

TEST(StepList, OnlyWhatIsReadLaterIsKeptInMemory) {
  const StageRun run = Layers(2).runs().at(0);
  for (size_t s = 0; s < run.stages.size(); ++s) {
    const Stage& stage = run.stages[s];
    const bool residual = s % 5 == 2 || s % 5 == 4, last_layer = s >= 5;
    EXPECT_EQ(stage.keeps_floats, residual || last_layer ? 1u : 0u) << s;
    EXPECT_EQ(stage.keeps_bytes, last_layer && s != 10 && s != 5 ? 1u : 0u) << s;
  }
}

TEST(StepList, ForeignLaunchesEndARun) {
  Layers layers(3);
  layers.foreign(10);
  const auto runs = layers.runs();
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].end, 10u);
  EXPECT_EQ(runs[1].first, 11u);
  EXPECT_EQ(runs[1].stages[0].mail.in, nullptr);  // what it reads was kept in memory
  EXPECT_EQ(runs[0].stages.back().keeps_bytes, 1u);
}

TEST(StepList, ARunBeginsBehindAttention) {
  Layers layers(2);
  layers.foreign(1);
  const auto runs = layers.runs();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].first, 3u);  // attention's rows are not mail, so it goes by itself
}

TEST(StepList, WhatDoesNotFitEndsARun) {
  const auto end_of_first = [](Layers& layers) {
    const auto runs = layers.runs();
    return runs.empty() ? 0 : runs[0].end;
  };
  {  // reads an older value than the last stage's
    Layers layers(2);
    layers.at(8).codes = layers.at(7).codes;
    layers.at(8).scales = layers.at(7).scales;
    layers.at(8).n_groups = layers.at(7).n_groups;
    EXPECT_EQ(end_of_first(layers), 8u);
  }
  {  // the residual's units are dealt in another way
    Layers layers(2);
    layers.at(7).n_units -= 1;
    EXPECT_EQ(end_of_first(layers), 7u);
  }
  {  // other rows
    Layers layers(2);
    layers.at(5).n_rows = Layers::counts() + 1;
    EXPECT_EQ(end_of_first(layers), 5u);
  }
  {  // no bytes wanted of attention
    Layers layers(2);
    layers.attend(6).out_q8 = {};
    EXPECT_EQ(end_of_first(layers), 6u);
  }
  {  // keys were appended before
    Layers layers(2);
    layers.attend(6).a.k_rows = nullptr;
    EXPECT_EQ(end_of_first(layers), 6u);
  }
  {  // many keys
    Layers layers(2);
    layers.attend(6).a.max_chunks = kMostStepChunks + 1;
    EXPECT_EQ(end_of_first(layers), 6u);
  }
  {  // another struct under the same name
    Layers layers(2);
    layers.launches[7].arguments.resize(sizeof(Product) - 8);
    EXPECT_EQ(end_of_first(layers), 7u);
  }
}

// A fast block's attention could write where a slow one still reads the input of the product before.
TEST(StepList, KeptOutputOfAttentionMustNotMeetTheInputBefore) {
  Layers layers(1);
  const auto* const input = reinterpret_cast<const float*>(layers.at(0).codes);
  layers.attend(1).a.out = const_cast<float*>(input);
  const auto runs = layers.runs();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].first, 2u);
}

// Attention's partials lie in scratch, where a launch before the run may have made the first product's bytes.
TEST(StepList, PartialsMustNotMeetTheInputBefore) {
  Layers layers(2);
  layers.attend(1).a.max_chunks = layers.attend(6).a.max_chunks = 4;
  layers.attend(1).partial_stride = layers.attend(6).partial_stride = kHeadDim + 4;
  EXPECT_EQ(layers.runs().at(0).first, 0u);
  layers.attend(1).partials = reinterpret_cast<float*>(Layers::kBytesX - 1024);
  layers.attend(6).partials = layers.attend(1).partials;
  EXPECT_EQ(layers.runs().at(0).first, 2u);
}

// Attention at the end of a run sends to nobody; what stands before it must be read whole.
TEST(StepList, MakersAreReadWhole) {
  Layers layers(2);
  layers.foreign(7);
  const auto runs = layers.runs();
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].end, 7u);
  EXPECT_EQ(runs[0].stages.back().mail.out, nullptr);
  EXPECT_EQ(runs[0].stages.back().keeps_bytes, 1u);
  Layers four(2);
  four.at(5).matrix[3] = four.at(5).matrix[2];
  four.at(5).matrix[3].out = reinterpret_cast<float*>(0x200000);
  four.at(5).n_matrices = 4;
  EXPECT_EQ(four.runs().at(0).end, 6u);
}

}  // namespace
}  // namespace turbo::arch_rdna2
