// Device codecs against their CPU halves: stored bytes, moves, attention with every codec, refusals.
#include "support.h"

#include <turbo/kernel/gpu/attend_mixed.hpp>
#include <turbo/kernel/lanes.h>

TB_KERNEL(soft_chunk, turbo::gpu::MixedArgs, 128) { turbo::gpu::soft_chunk_body(args); }
TB_KERNEL(merge_window, turbo::gpu::MixedArgs, 128) { turbo::gpu::merge_window_body(args); }

namespace turbo::test {
namespace {

struct Named { const char* name; OptionMap options; };

const std::vector<Named>& all_codecs() {
  static const std::vector<Named> all = {
      {"f32", {}}, {"f16", {}}, {"bf16", {}}, {"fp8_e4m3", {}}, {"fp8_e5m2", {}}, {"fp8_e4m3", {{"scale", std::string("head")}, {"rotate", std::string("hadamard")}}},
      {"fp8_e5m2", {{"scale", std::string("head")}}}, {"q8", {}}, {"q8", {{"rotate", std::string("hadamard")}}}, {"q4", {}}, {"q4", {{"rotate", std::string("none")}}},
      {"tq2", {}}, {"tq3", {}}, {"tq4", {}}, {"rq3_planar", {}}, {"rq4_planar", {}}, {"rq3_iso", {}}, {"rq4_iso", {}},
      {"tq4", {{"group", int64_t{32}}}}, {"tq3", {{"scale", std::string("f32")}, {"sinks", int64_t{0}}}}, {"rq4_planar", {{"mix", std::string("none")}, {"scale", std::string("norm")}}},
      {"rq3_iso", {{"iso", std::string("left")}, {"scale", std::string("lsq")}, {"sinks", int64_t{64}}}}, {"tq2", {{"rot", std::string("dense")}, {"scale", std::string("raw")}, {"sinks", int64_t{7}}}}};
  return all;
}

class EveryCodec : public testing::TestWithParam<size_t> {
 protected:
  FiberDevice device;
  DeviceCodec codec{device, all_codecs()[GetParam()].name, all_codecs()[GetParam()].options};
};

TEST_P(EveryCodec, AppendStoresTheBytesOfTheCpuTier) {
  for (const uint32_t d : {64u, 80u, 96u, 256u, 128u}) {
    for (const bool centered : {false, true}) {
      if (centered && d != 128) continue;
      const turbo_kv_shape key_shape{sizeof(turbo_kv_shape), 0, 0, 1, 3, d};
      if (centered) {
        std::vector<float> center(3 * d);
        for (size_t i = 0; i < center.size(); ++i) center[i] = static_cast<float>(i % 13) * 0.3f - 2.0f;
        turbo_error error{sizeof(turbo_error)};
        ASSERT_EQ(codec->set_center(codec.self(), &key_shape, center.data(), &error), TURBO_OK) << error.message;
      }
      StepUnderTest step(codec, codec, {d, 3, 1}, {chain(60, 9)}, 2, d);
      // What is hard to round: zeros, the largest, the smallest, one outlier, ties.
      for (std::vector<float>& rows : step.rows) {
        std::fill_n(&rows[0], d, 0.0f);
        for (uint32_t e = 0; e < d; ++e) {
          rows[3 * d + e] = e == 5 ? 1e30f : 1.0f;
          rows[6 * d + e] = 1e-7f * static_cast<float>(e);
          rows[9 * d + e] = e % 2 ? -65519.0f : 65519.0f;
          rows[12 * d + e] = static_cast<float>(e) * 0.5f - 7.0f;
          rows[15 * d + e] = e == 3 ? -440.0f : 0.0f;
        }
      }
      step.append();
      for (uint32_t side : {0u, 1u}) {
        const bool open = step.two_forms(side);
        const uint64_t bytes = open ? step.layout[side].open_block_bytes : step.layout[side].packed_block_bytes;
        for (uint32_t b = 0; b < 2; ++b) {
          std::vector<uint8_t> by_cpu(bytes, 0xff);
          for (uint32_t p = b * 64; p < 60; ++p) {  // what was there before
            const uint8_t* from = step.block(side, 0, p, open);
            codec->move_row(codec.self(), &step.kv_shape[side], from, p % 64, by_cpu.data(), p % 64);
          }
          for (uint32_t r = 0; r < step.n_rows; ++r)
            if ((60 + r) / 64 == b) {
              ASSERT_EQ(codec->append(codec.self(), &step.kv_shape[side], by_cpu.data(), (60 + r) % 64, &step.rows[side][uint64_t{r} * 3 * d], 0, 3), TURBO_OK);
            }
          EXPECT_EQ(std::memcmp(by_cpu.data(), step.block(side, 0, b * 64, open), bytes), 0) << "side " << side << " d " << d << " block " << b;
        }
      }
    }
  }
}

TEST_P(EveryCodec, MovesOneRow) {
  StepUnderTest step(codec, codec, {96, 5, 1}, {chain(64, 2)});
  for (uint32_t side : {0u, 1u}) {
    const bool open = step.two_forms(side);
    const uint64_t bytes = open ? step.layout[side].open_block_bytes : step.layout[side].packed_block_bytes;
    std::vector<uint8_t> expected(step.block(side, 0, 64, open), step.block(side, 0, 64, open) + bytes);
    codec->move_row(codec.self(), &step.kv_shape[side], step.block(side, 0, 0, open), 17, expected.data(), 40);
    const turbo_device_kv kv = step.device_kv(side);
    turbo_error error{sizeof(turbo_error)};
    const std::vector<int32_t>& ids = open ? step.open_table : step.block_table;
    ASSERT_EQ(codec.device_table->move_row(codec.self(), nullptr, &kv, 1, ids[0], 17, ids[1], 40, &error), TURBO_OK) << error.message;
    EXPECT_EQ(std::memcmp(expected.data(), step.block(side, 0, 64, open), bytes), 0) << "side " << side;
  }
}

// All layers of a side at once, more than a launch takes, in blocks that hold other things too.
TEST_P(EveryCodec, LayersAreMovedAndPackedTogether) {
  constexpr uint32_t kLayers = 130, d = 32, heads = 2;
  for (const uint32_t side : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V}) {
    turbo_kv_shape shape{sizeof(turbo_kv_shape), side, 0, kLayers, heads, d};
    turbo_kv_layout layout{};
    layout.struct_size = sizeof layout;
    turbo_error error{sizeof(turbo_error)};
    ASSERT_EQ(codec->layout(codec.self(), &shape, &layout, &error), TURBO_OK) << error.message;
    const bool open = !(layout.flags & TURBO_KV_OPEN_IS_PACKED);
    const auto spaced = [](uint64_t bytes) { return (bytes + 63) / 64 * 64 + 64; };
    const uint64_t packed_part = spaced(layout.packed_block_bytes), open_part = open ? spaced(layout.open_block_bytes) : 0;
    Memory packed(3 * kLayers * packed_part), opened(3 * kLayers * open_part);
    std::vector<turbo_device_kv> kv;
    for (uint32_t layer = 0; layer < kLayers; ++layer)
      kv.push_back({packed.data + layer * packed_part, open ? opened.data + layer * open_part : nullptr, kLayers * packed_part, kLayers * open_part, heads, d, 0, layer, side, 0});
    const auto block = [&](uint32_t layer, uint64_t id, bool of_open) {
      return of_open ? kv[layer].open_base + id * kv[layer].open_stride : kv[layer].base + id * kv[layer].stride;
    };
    // Block 2 of a layer is full of rows, other ones than in the layers near it; row 9 of it goes to row 63 of block 0.
    constexpr uint32_t kDifferent = 7;
    const uint64_t bytes_of_form = open ? layout.open_block_bytes : layout.packed_block_bytes;
    std::mt19937 random(side);
    std::normal_distribution<float> normal;
    std::vector<float> row(heads * d);
    for (uint32_t layer = 0; layer < kLayers; ++layer)
      if (layer >= kDifferent) std::memcpy(block(layer, 2, open), block(layer % kDifferent, 2, open), bytes_of_form);
      else
        for (uint32_t r = 0; r < 64; ++r) {
          for (float& x : row) x = normal(random);
          ASSERT_EQ(codec->append(codec.self(), &shape, block(layer, 2, open), r, row.data(), 0, heads), TURBO_OK);
        }
    const std::vector<uint8_t> packed_before(packed.data, packed.data + packed.bytes), open_before(opened.data, opened.data + opened.bytes);
    std::vector<uint8_t> packed_want = packed_before, open_want = open_before;
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      std::vector<uint8_t>& all = open ? open_want : packed_want;
      uint8_t* const to = all.data() + layer * (open ? open_part : packed_part);
      codec->move_row(codec.self(), &shape, block(layer, 2, open), 9, to, 63);
    }
    device.n_launches = 0;
    ASSERT_EQ(codec.device_table->move_row(codec.self(), nullptr, kv.data(), kLayers, 2, 9, 0, 63, &error), TURBO_OK) << error.message;
    EXPECT_EQ(device.n_launches, 2u) << "128 layers a launch";
    EXPECT_EQ(std::memcmp(packed.data, packed_want.data(), packed.bytes), 0) << "side " << side;
    if (open) { EXPECT_EQ(std::memcmp(opened.data, open_want.data(), opened.bytes), 0) << "side " << side; }
    EXPECT_NE(std::memcmp(open ? opened.data : packed.data, open ? open_before.data() : packed_before.data(), bytes_of_form), 0);
    if (!open || GetParam() > 17) continue;  // other options make no other kernels
    const auto want = [&](uint32_t layer) { return packed_want.data() + layer * packed_part + kv[layer].stride; };
    for (uint32_t layer = 0; layer < kLayers; ++layer)
      if (layer >= kDifferent) std::memcpy(want(layer), want(layer % kDifferent), layout.packed_block_bytes);
      else ASSERT_EQ(codec->pack(codec.self(), &shape, block(layer, 2, true), want(layer)), TURBO_OK);
    ASSERT_EQ(codec.device_table->pack(codec.self(), nullptr, kv.data(), kLayers, 2, 1, &error), TURBO_OK) << error.message;
    EXPECT_EQ(device.n_launches, 4u);
    EXPECT_EQ(std::memcmp(packed.data, packed_want.data(), packed.bytes), 0) << "side " << side;
    // Parts that are not alike are refused, and nothing is launched.
    std::vector<turbo_device_kv> other(kv.begin(), kv.begin() + 2);
    other[1].head_dim = 64;
    EXPECT_EQ(codec.device_table->pack(codec.self(), nullptr, other.data(), 2, 2, 1, &error), TURBO_INVALID_ARGUMENT);
    EXPECT_EQ(codec.device_table->move_row(codec.self(), nullptr, other.data(), 2, 2, 9, 0, 63, &error), TURBO_INVALID_ARGUMENT);
    EXPECT_EQ(codec.device_table->pack(codec.self(), nullptr, kv.data(), 0, 2, 1, &error), TURBO_INVALID_ARGUMENT);
    EXPECT_EQ(device.n_launches, 4u);
  }
}

TEST_P(EveryCodec, AttentionIsThatOfTheStoredNumbers) {
  struct Case { Shape shape; std::vector<Sequence> sequences; };
  const std::vector<Case> cases = {{{128, 2, 2}, {chain(300, 1), chain(0, 1), chain(63, 1)}},
                                   {{64, 1, 3}, {tree(130, 6, 3), chain(256, 3)}},
                                   {{256, 1, 2}, {chain(80, 2)}},
                                   {{96, 1, 5}, {tree(70, 5, 4)}}};
  for (const Case& c : cases) {
    StepUnderTest step(codec, codec, c.shape, c.sequences, 1, 11);
    step.append();
    step.attend(step.args());
    step.expect_near(step.reference(), 2e-5);
  }
}

TEST_P(EveryCodec, FusedAndMixedGiveEqualBits) {
  StepUnderTest step(codec, codec, {128, 1, 3}, {chain(315, 3), tree(100, 4, 1)}, 1, 5);
  step.append();
  step.attend(step.args());
  const std::vector<float> fused = step.live();
  // scores, softmax as attend_order.hpp has it, accumulate, in windows of one chunk
  turbo_device_attend a = step.args();
  const uint32_t heads = step.heads(), d = 128;
  std::vector<float> scores(uint64_t{step.max_rows} * heads * 256), partials(uint64_t{step.max_rows} * heads * (d + 2));
  std::vector<float> most(uint64_t{step.n_rows} * heads, -INFINITY), sum(most.size()), value(most.size() * d), mixed(most.size() * d);
  turbo_error error{sizeof(turbo_error)};
  const auto exp_of = [](float x) { return turbo_exp(x); };
  for (uint32_t chunk = 0; chunk < step.max_chunks; ++chunk) {
    ASSERT_EQ(codec.device_table->scores(codec.self(), nullptr, &a, chunk, 1, scores.data(), 256, &error), TURBO_OK) << error.message;
    std::vector<float> chunk_most(most.size()), chunk_sum(most.size());
    for (uint64_t i = 0; i < most.size(); ++i) {
      const uint32_t keys = static_cast<uint32_t>(step.position[i / heads]) + 1;
      if (keys <= chunk * 256) continue;
      const uint32_t n = std::min(256u, keys - chunk * 256);
      float* s = &scores[i * 256];
      chunk_most[i] = *std::max_element(s, s + n);
      for (uint32_t split = 0; split < 4; ++split) {
        float lanes[32];
        for (uint32_t l = 0; l < 32; ++l) {
          float p[2] = {0, 0};
          for (uint32_t half = 0; half < 2; ++half) {
            const uint32_t key = split * 64 + half * 32 + l;
            if (key < n) p[half] = s[key] = exp_of(s[key] - chunk_most[i]);
          }
          lanes[l] = p[0] + p[1];
        }
        for (uint32_t m = 16; m; m /= 2)
          for (uint32_t l = 0; l < m; ++l) lanes[l] += lanes[l + m];
        chunk_sum[i] += lanes[0];
      }
    }
    ASSERT_EQ(codec.device_table->accumulate(codec.self(), nullptr, &a, chunk, 1, scores.data(), 256, partials.data(), d + 2, &error), TURBO_OK) << error.message;
    for (uint64_t i = 0; i < most.size(); ++i) {
      if (static_cast<uint32_t>(step.position[i / heads]) < chunk * 256) continue;
      const float m = std::max(most[i], chunk_most[i]), there = exp_of(most[i] - m), next = exp_of(chunk_most[i] - m);
      sum[i] = std::fmaf(sum[i], there, chunk_sum[i] * next);
      for (uint32_t e = 0; e < d; ++e) value[i * d + e] = std::fmaf(value[i * d + e], there, partials[i * (d + 2) + 2 + e] * next);
      most[i] = m;
    }
  }
  for (uint64_t i = 0; i < mixed.size(); ++i) mixed[i] = value[i] / sum[i / d];
  EXPECT_EQ(std::memcmp(mixed.data(), fused.data(), fused.size() * 4), 0);

  // The same by the kernels that a pack has for it, all chunks in one window and one by one.
  for (const uint32_t window : {1u, step.max_chunks}) {
    std::vector<float> state(uint64_t{step.max_rows} * heads * (d + 2), NAN);
    scores.assign(uint64_t{step.max_rows} * heads * window * 256, NAN);
    partials.assign(uint64_t{step.max_rows} * heads * window * (d + 2), NAN);
    step.out.assign(step.out.size(), -7.0f);
    for (uint32_t begin = 0; begin < step.max_chunks; begin += window) {
      const gpu::MixedArgs m{a.table, heads, d, begin, window, step.max_chunks, scores.data(), window * 256ull, partials.data(), d + 2ull,
                             state.data(), step.out.data(), uint64_t{heads} * d};
      ASSERT_EQ(codec.device_table->scores(codec.self(), nullptr, &a, begin, window, scores.data(), m.score_stride, &error), TURBO_OK);
      fiber::run(*fiber::Kernel::find(fiber::Kernel::first(), "soft_chunk"), {heads, window, step.max_rows}, 128, 0, &m, false);
      ASSERT_EQ(codec.device_table->accumulate(codec.self(), nullptr, &a, begin, window, scores.data(), m.score_stride, partials.data(), d + 2, &error), TURBO_OK);
      fiber::run(*fiber::Kernel::find(fiber::Kernel::first(), "merge_window"), {heads, step.max_rows, 1}, 128, 0, &m, false);
    }
    EXPECT_EQ(std::memcmp(step.out.data(), fused.data(), fused.size() * 4), 0) << "windows of " << window;
    for (uint64_t i = fused.size(); i < step.out.size(); ++i) ASSERT_EQ(step.out[i], -7.0f);
  }
}

std::string codec_name(const testing::TestParamInfo<size_t>& info) {
  std::string name = all_codecs()[info.param].name;
  for (const auto& [key, value] : all_codecs()[info.param].options) name += "_" + key;
  return name + "_" + std::to_string(info.param);
}
INSTANTIATE_TEST_SUITE_P(Hip, EveryCodec, testing::Range<size_t>(0, all_codecs().size()), codec_name);

TEST(HipCodec, RefusesWhatNoKernelTakes) {
  FiberDevice device;
  DeviceCodec codec(device, "f16"), other(device, "q8");
  turbo_error error{sizeof(turbo_error)};
  turbo_kv_layout layout{sizeof(turbo_kv_layout)};
  for (const uint32_t d : {260u, 512u, 12u}) {
    const turbo_kv_shape shape{sizeof(turbo_kv_shape), 0, 0, 1, 1, d};
    EXPECT_EQ(codec->layout(codec.self(), &shape, &layout, &error), TURBO_UNSUPPORTED) << d;
    EXPECT_NE(std::string(error.message).find("head size " + std::to_string(d)), std::string::npos) << error.message;
  }
  StepUnderTest step(codec, codec, {128, 1, 2}, {chain(3, 1)});
  turbo_device_attend a = step.args();
  EXPECT_EQ(codec.device_table->check(codec.self(), &a, other->fingerprint(other.self()), &error), TURBO_UNSUPPORTED);
  const uint64_t print = codec->fingerprint(codec.self());
  EXPECT_EQ(codec.device_table->check(codec.self(), &a, print, &error), TURBO_OK);
  a.n_heads = 3;
  a.k.n_kv_heads = a.v.n_kv_heads = 2;
  EXPECT_EQ(codec.device_table->check(codec.self(), &a, print, &error), TURBO_UNSUPPORTED);
}

TEST(HipCodec, GivesAllMemoryBack) {
  FiberDevice device;
  {
    DeviceCodec codec(device, "rq4_iso");
    StepUnderTest step(codec, codec, {128, 1, 2}, {chain(64, 1)});
    EXPECT_GT(device.live_allocations, 0u);
    codec.client->detach(codec.self());
    EXPECT_EQ(device.live_allocations, 0u);
    turbo_error error{sizeof(turbo_error)};
    ASSERT_EQ(codec.client->attach(codec.self(), &device.table, &error), TURBO_OK);
    step.append();
    step.attend(step.args());
    step.expect_near(step.reference(), 2e-5);
  }
  EXPECT_EQ(device.live_allocations, 0u);
}

}  // namespace
}  // namespace turbo::test
