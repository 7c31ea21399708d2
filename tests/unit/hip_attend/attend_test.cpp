// Attention of the HIP tier: every remainder, any tile, trees, padding, NaN of others, rows appended on the way.
#include "support.h"

#include <turbo/kernel/gpu/attend_order.hpp>
#include <turbo/kernel/gpu/rope.hpp>
#include <turbo/kernel/lanes.h>

namespace turbo::test {
namespace {

class HipAttend : public testing::Test {
 protected:
  FiberDevice device;
};

TEST_F(HipAttend, EveryRemainderOfKeys) {
  DeviceCodec codec(device, "f16");
  for (uint32_t n = 1; n <= 700; n += n < 70 || (n > 250 && n < 262) || (n > 508 && n < 518) ? 1 : 13) {
    StepUnderTest step(codec, codec, {64, 1, 1}, {chain(n - 1, 1)}, 0, n);
    step.append();
    step.attend(step.args());
    step.expect_near(step.reference(), 3e-6);
  }
}

TEST_F(HipAttend, EveryNumberOfRows) {
  DeviceCodec codec(device, "f16");
  for (uint32_t n = 1; n <= 130; n += n < 20 ? 1 : 11) {
    StepUnderTest step(codec, codec, {64, 1, 2}, {chain(n % 70, n)}, n % 3, n);
    step.append();
    step.attend(step.args());
    step.expect_near(step.reference(), 3e-6);
  }
}

// One row's bits: appended on the way or before, tiles of every width, a chunk a block or all of them in turn, heads of every
// width. Up to 128 keys are dealt over all waves, more are not.
TEST_F(HipAttend, OneRowIsTheSameInEveryForm) {
  for (const char* name : {"f16", "q8"})
    for (const uint32_t d : {48u, 128u, 256u})
      for (const uint32_t n : {1u, 16u, 64u, 65u, 127u, 128u, 129u, 256u, 257u, 330u, 600u}) {
        DeviceCodec codec(device, name);
        StepUnderTest step(codec, codec, {d, 1, 2}, {chain(n - 1, 1), chain(700 - n, 1)}, 1, n);
        turbo_device_attend a = step.args();
        a.k_rows = step.rows[0].data();
        a.v_rows = step.rows[1].data();
        device.table.compute_units = 1000;
        step.attend(a);
        const std::vector<float> own = step.live();
        step.append();
        for (const uint32_t units : {1000u, 1u}) {
          device.table.compute_units = units;
          step.attend(step.args());
          EXPECT_EQ(std::memcmp(step.out.data(), own.data(), own.size() * 4), 0) << name << ", " << d << " elements, " << n << " keys, units " << units;
        }
      }
  device.table.compute_units = 2;
}

// Runs of rows are longer than what a wave looks at together, and begin anywhere.
TEST_F(HipAttend, LongRunsBehindOthers) {
  DeviceCodec codec(device, "f16");
  StepUnderTest step(codec, codec, {64, 1, 2}, {chain(0, 33), chain(2, 327), chain(9, 1), chain(0, 65)}, 3, 5);
  step.append();
  step.attend(step.args());
  step.expect_near(step.reference(), 3e-6);
}

TEST_F(HipAttend, GroupsOfOneToSixteenHeads) {
  DeviceCodec codec(device, "f16");
  for (uint32_t group = 1; group <= 16; ++group) {
    StepUnderTest step(codec, codec, {128, 2, group}, {chain(77, 2), tree(5, 3, group)}, 1, group);
    step.append();
    step.attend(step.args());
    step.expect_near(step.reference(), 3e-6);
  }
}

// One row's bits: alone, among others, in tiles of any width, one chunk a block or all.
TEST_F(HipAttend, ARowsBitsDependOnItselfAlone) {
  for (const char* name : {"f16", "q4", "tq3"}) {
    DeviceCodec codec(device, name);
    StepUnderTest step(codec, codec, {128, 1, 2}, {tree(290, 7, 2), chain(575, 1), chain(20, 4)}, 2, 9);
    step.append();
    step.attend(step.args());
    const std::vector<float> together = step.live();
    for (const uint32_t units : {1u, 1000u}) {  // few: a block walks all chunks; many: one chunk a block
      device.table.compute_units = units;
      for (const uint32_t same : {0u, 1u}) {
        turbo_device_attend a = step.args();
        a.same_sequence = same;
        step.attend(a);
        EXPECT_EQ(std::memcmp(step.out.data(), together.data(), together.size() * 4), 0) << name << " units " << units << " same " << same;
      }
    }
    const uint64_t width = uint64_t{step.heads()} * 128;
    for (uint32_t r = 0; r < step.n_rows; ++r) {  // each row alone, its sequence otherwise as it is
      turbo_device_attend a = step.args();
      const uint32_t counts[4] = {1, 3, 0, 0};
      a.table.counts = counts;
      a.table.position += r;
      a.table.row_seq += r;
      a.table.slot += r;
      a.table.path_length += r;
      a.table.path += uint64_t{r} * step.path_capacity;
      a.q += r * width;
      a.max_rows = 1;
      turbo_error error{sizeof(turbo_error)};
      Memory workspace(codec.device_table->workspace_bytes(codec.self(), &a, codec->fingerprint(codec.self())));
      a.workspace = workspace.data;
      step.out.assign(step.out.size(), -7.0f);
      ASSERT_EQ(codec.device_table->attend(codec.self(), nullptr, &a, codec->fingerprint(codec.self()), &error), TURBO_OK) << error.message;
      EXPECT_EQ(std::memcmp(step.out.data(), &together[r * width], width * 4), 0) << name << " row " << r;
    }
    device.table.compute_units = 2;
  }
}

TEST_F(HipAttend, UncommittedBlocksReadOpen) {
  DeviceCodec codec(device, "tq4");
  for (const bool all_open : {false, true}) {
    StepUnderTest step(codec, codec, {128, 1, 2}, {chain(all_open ? 100 : 128, all_open ? 60 : 20), chain(5, 8)}, 1, 3, all_open);
    step.append();
    step.attend(step.args());
    step.expect_near(step.reference(), 2e-5);
  }
}

// Norm, rotation and append on the way give the bits of separate steps.
TEST_F(HipAttend, TakesTheStepsRowsItself) {
  for (const char* name : {"f16", "fp8_e4m3", "q8", "q4", "tq4", "rq3_planar"})
    for (const uint32_t style : {0u, 1u}) {
      DeviceCodec codec(device, name);
      StepUnderTest step(codec, codec, {128, 2, 2}, {tree(250, 9, 5), chain(40, 2)}, 1, 21);
      std::vector<float> frequencies(48), q_norm(128), k_norm(128);
      for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] = std::pow(1e4f, -static_cast<float>(i) / 48.0f);
      for (size_t i = 0; i < 128; ++i) {
        q_norm[i] = 0.5f + static_cast<float>(i % 7) * 0.2f;
        k_norm[i] = 1.5f - static_cast<float>(i % 5) * 0.2f;
      }
      turbo_device_attend a = step.args();
      a.k_rows = step.rows[0].data();
      a.v_rows = step.rows[1].data();
      a.q_norm = q_norm.data();
      a.k_norm = k_norm.data();
      a.eps = 1e-6f;
      a.rope_dims = 96;
      a.rope_style = style;
      a.rope_magnitude = 1.25f;
      a.rope_frequencies = frequencies.data();
      device.n_launches = 0;
      device.table.compute_units = 1000;
      step.attend(a);
      EXPECT_EQ(device.n_launches, 1u);
      const std::vector<float> fused = step.live();
      std::vector<uint8_t> cache[2];
      for (uint32_t side : {0u, 1u}) {
        const Memory& from = step.two_forms(side) ? *step.open[side] : *step.packed[side];
        cache[side].assign(from.data, from.data + from.bytes);
      }
      device.table.compute_units = 1;  // all chunks a block: the rows are appended before
      step.attend(a);
      EXPECT_GT(device.n_launches, 3u);
      EXPECT_EQ(std::memcmp(step.out.data(), fused.data(), fused.size() * 4), 0) << name;

      // By hand.
      const auto turn = [&](float* head, const float* norm, int32_t position) {
        float lanes[128], sum = 0;
        for (uint32_t w = 0; w < 4; ++w) {
          for (uint32_t l = 0; l < 32; ++l) lanes[l] = head[32 * w + l] * head[32 * w + l];
          for (uint32_t m = 16; m; m /= 2)
            for (uint32_t l = 0; l < m; ++l) lanes[l] += lanes[l + m];
          sum += lanes[0];
        }
        const float r = 1.0f / std::sqrt(sum / 128.0f + 1e-6f);
        for (uint32_t e = 0; e < 128; ++e) head[e] = head[e] * r * norm[e];
        gpu::rope_head(head, 96, style, frequencies.data(), 1.25f, position, 0, 1);
      };
      for (uint32_t r = 0; r < step.n_rows; ++r) {
        for (uint32_t h = 0; h < step.heads(); ++h) turn(&step.q[(uint64_t{r} * step.heads() + h) * 128], q_norm.data(), step.position[r]);
        for (uint32_t h = 0; h < 2; ++h) turn(&step.rows[0][(uint64_t{r} * 2 + h) * 128], k_norm.data(), step.position[r]);
      }
      step.append();
      for (uint32_t side : {0u, 1u}) {
        const Memory& from = step.two_forms(side) ? *step.open[side] : *step.packed[side];
        EXPECT_EQ(std::memcmp(cache[side].data(), from.data, from.bytes), 0) << name << " side " << side;
      }
      step.attend(step.args());
      EXPECT_EQ(std::memcmp(step.out.data(), fused.data(), fused.size() * 4), 0) << name << " style " << style;
    }
  device.table.compute_units = 2;
}

// What another sequence holds, NaN in its queries, keys and values, does not reach a row.
TEST_F(HipAttend, NaNStaysInItsSequence) {
  for (const char* name : {"f16", "q8", "tq4"}) {
    DeviceCodec codec(device, name);
    StepUnderTest step(codec, codec, {128, 1, 2}, {chain(260, 2), chain(130, 2), chain(10, 2)}, 1, 4);
    step.append();
    step.attend(step.args());
    const std::vector<float> before = step.live();
    const uint64_t width = uint64_t{step.heads()} * 128;
    for (uint32_t r : {2u, 3u}) {
      std::fill_n(&step.q[r * width], width, NAN);
      for (std::vector<float>& rows : step.rows) std::fill_n(&rows[uint64_t{r} * 128], 128, NAN);
    }
    step.append();
    step.attend(step.args());
    EXPECT_EQ(std::memcmp(step.out.data(), before.data(), 2 * width * 4), 0) << name;
    EXPECT_EQ(std::memcmp(&step.out[4 * width], &before[4 * width], 2 * width * 4), 0) << name;
    for (uint64_t i = 2 * width; i < 4 * width; ++i) ASSERT_TRUE(std::isnan(step.out[i])) << name << " " << i;
  }
}

TEST_F(HipAttend, LargeScoresDoNotOverflow) {
  DeviceCodec codec(device, "f32");
  StepUnderTest step(codec, codec, {64, 1, 1}, {chain(300, 2)}, 0, 8);
  for (float& x : step.q) x *= 3000.0f;
  step.append();
  step.attend(step.args());
  step.expect_near(step.reference(), 1e-3);
}

TEST(HipOrder, ExpIsThatOfTheCpuTier) {
  std::mt19937 random(3);
  for (uint32_t i = 0; i < 200000; ++i) {
    const float x = i < 1000 ? static_cast<float>(i) * 0.1f - 95.0f : gpu::from_bits(random());
    const float a = gpu::exp_of(x), b = turbo_exp(x);
    ASSERT_TRUE(a == b || (a != a && b != b)) << x;
  }
}

TEST(HipRope, AnglesAreThoseOfDouble) {
  double worst = 0;
  for (int32_t p = 0; p < 2000000; p = p < 1000 ? p + 1 : p + 1999)
    for (int i = 0; i < 64; i += 5) {
      const float f = static_cast<float>(std::pow(1e6, -i / 64.0));
      const gpu::RopeTurn t = gpu::rope_turn(p, f, 1.0f);
      const double angle = static_cast<double>(p) * static_cast<double>(f);
      worst = std::max({worst, std::fabs(static_cast<double>(t.c) - std::cos(angle)), std::fabs(static_cast<double>(t.s) - std::sin(angle))});
    }
  EXPECT_LE(worst, 1.5e-7);
}

}  // namespace
}  // namespace turbo::test
