// The device sampler against the CPU sampler's code on the same logits: every output to the bit. And what a call costs.
#include "../../../plugins/sample_standard/src/answer.h"
#include "../../../plugins/sample_standard/hip/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "fiber_device.h"

namespace turbo::sample_standard {
namespace {

/// A call with parameters by request, one request a row.
struct Call {
  uint32_t rows, vocab, n_top = 0;
  uint64_t stride;
  bool logprobs = false;
  std::vector<float> logits;
  std::vector<float> temperature, top_p, min_p, typical_p, repetition, presence, frequency;
  std::vector<int32_t> top_k;
  std::vector<uint64_t> seed, position;
  std::vector<uint32_t> request, n_tokens, n_prompt, n_bias, path_length, mask;
  std::vector<std::vector<int32_t>> tokens, bias_ids;
  std::vector<std::vector<float>> bias_values;
  std::vector<int32_t> path;
  std::vector<const int32_t*> tokens_at, bias_ids_at;
  std::vector<const float*> bias_values_at;
  turbo_sampling_params params{};

  struct Outputs {
    std::vector<int32_t> ids, top_ids;
    std::vector<float> logprobs, top_logprobs;
    std::vector<turbo_status> status;
  };

  Call(uint32_t rows, uint32_t vocab, uint64_t padding = 0)
      : rows(rows), vocab(vocab), stride(vocab + padding), logits(rows * stride, NAN), temperature(rows, 1), top_p(rows, 1), min_p(rows, 0), typical_p(rows, 1),
        repetition(rows, 1), presence(rows, 0), frequency(rows, 0), top_k(rows, 0), seed(rows), position(rows), request(rows), n_tokens(rows), n_prompt(rows),
        n_bias(rows), path_length(rows), tokens(rows), bias_ids(rows), bias_values(rows), path(rows * 4, -1) {
    std::iota(request.begin(), request.end(), 0u);
  }
  float* row(uint32_t r) { return logits.data() + r * stride; }

  turbo_sample args(Outputs& out) {
    tokens_at.clear(), bias_ids_at.clear(), bias_values_at.clear();
    for (uint32_t r = 0; r < rows; ++r) {
      tokens_at.push_back(tokens[r].data());
      n_tokens[r] = static_cast<uint32_t>(tokens[r].size());
      bias_ids_at.push_back(bias_ids[r].data());
      bias_values_at.push_back(bias_values[r].data());
      n_bias[r] = static_cast<uint32_t>(bias_ids[r].size());
    }
    params = {sizeof params, rows, temperature.data(), top_k.data(), top_p.data(), min_p.data(), typical_p.data(), repetition.data(), presence.data(),
              frequency.data(), seed.data(), tokens_at.data(), n_tokens.data(), n_prompt.data(), bias_ids_at.data(), bias_values_at.data(), n_bias.data()};
    out.ids.assign(rows, -77);
    out.status.assign(rows, -77);
    out.logprobs.assign(rows, 77);
    out.top_ids.assign(rows * n_top, -77);
    out.top_logprobs.assign(rows * n_top, 77);
    turbo_sample a{};
    a.struct_size = sizeof a;
    a.n_rows = rows, a.vocab = vocab, a.n_top = n_top;
    a.logits = logits.data(), a.logit_stride = stride;
    a.params = &params, a.row_request = request.data(), a.row_position = position.data();
    a.path = path.data(), a.path_length = path_length.data(), a.path_stride = 4;
    if (!mask.empty()) a.mask = mask.data(), a.mask_stride = (vocab + 31) / 32;
    a.ids = out.ids.data(), a.row_status = out.status.data();
    a.logprobs = logprobs ? out.logprobs.data() : nullptr;
    a.top_ids = n_top ? out.top_ids.data() : nullptr;
    a.top_logprobs = n_top ? out.top_logprobs.data() : nullptr;
    return a;
  }
};

/// The CPU tier, as its plugin is.
class CpuSampler : public Sampler<CpuSampler> {
 public:
  void sample_row(const SampleRow& row, SampleAnswer& answer) override { answer_row(distribution_, row, answer); }

 private:
  Distribution distribution_;
};

Call::Outputs on_cpu(Call& call) {
  Call::Outputs out;
  CpuSampler().sample(call.args(out));
  return out;
}

struct Rig {
  FiberDevice device;
  DeviceSampler sampler;
  explicit Rig(uint32_t vocab = 0) : sampler(device.api(), vocab) {}
  Call::Outputs run(Call& call) {
    Call::Outputs out;
    turbo_sample args = call.args(out);
    float* const logits = device.upload(call.logits);
    args.logits = logits;
    device.counts = {};
    try {
      sampler.sample(args);
    } catch (...) {
      device.release(logits);
      throw;
    }
    device.release(logits);
    return out;
  }
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) { return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * 4) == 0); }

void expect_equal(const Call::Outputs& a, const Call::Outputs& b, const Call& call) {
  for (uint32_t r = 0; r < call.rows; ++r) {
    SCOPED_TRACE(testing::Message() << "row " << r << " temperature " << call.temperature[r] << " top_k " << call.top_k[r] << " top_p " << call.top_p[r] << " min_p "
                                    << call.min_p[r] << " typical " << call.typical_p[r] << " repetition " << call.repetition[r] << " logprobs " << call.logprobs << " top "
                                    << call.n_top);
    ASSERT_EQ(a.status[r], b.status[r]);
    ASSERT_EQ(a.ids[r], b.ids[r]);
    if (call.logprobs) { ASSERT_EQ(std::memcmp(&a.logprobs[r], &b.logprobs[r], 4), 0) << a.logprobs[r] << " " << b.logprobs[r]; }
  }
  ASSERT_EQ(a.top_ids, b.top_ids);
  ASSERT_TRUE(same_bits(a.top_logprobs, b.top_logprobs));
}

void fill_row(std::mt19937& rng, float* x, uint32_t n, uint32_t kind) {
  std::normal_distribution<float> normal(0, 1);
  for (uint32_t i = 0; i < n; ++i) switch (kind) {
      case 0: x[i] = normal(rng) * 3; break;                                      // like a model's
      case 1: x[i] = std::round(normal(rng) * 8) / 8; break;                      // ties
      case 2: x[i] = normal(rng) * 0.02f; break;                                  // flat
      case 3: x[i] = normal(rng) * 400; break;                                    // one token
      case 4: x[i] = 0.0f * (rng() % 2 ? 1.f : -1.f); break;                      // equal
      default: x[i] = rng() % 4 ? -INFINITY : normal(rng) * 2; break;
    }
}

void fill_parameters(std::mt19937& rng, Call& call) {
  const auto pick = [&](auto... values) {
    const std::common_type_t<decltype(values)...> all[] = {values...};
    return all[rng() % sizeof...(values)];
  };
  for (uint32_t r = 0; r < call.rows; ++r) {
    fill_row(rng, call.row(r), call.vocab, rng() % 6);
    if (rng() % 12 == 0) call.row(r)[rng() % call.vocab] = NAN;
    if (rng() % 12 == 0) call.row(r)[rng() % call.vocab] = INFINITY;
    if (rng() % 15 == 0) std::fill_n(call.row(r), call.vocab, -INFINITY);
    call.temperature[r] = pick(0.f, 0.f, 0.7f, 1.f, 1.3f, 5.f, 0.01f, 1e-45f, 1e6f);
    call.top_k[r] = pick(0, 0, 1, 20, 40, static_cast<int>(call.vocab), 3000);
    call.top_p[r] = pick(1.f, 1.f, 0.9f, 0.f, 0.999f);
    call.min_p[r] = pick(0.f, 0.f, 0.05f);
    call.typical_p[r] = pick(1.f, 1.f, 1.f, 0.8f);
    call.seed[r] = rng(), call.position[r] = rng();
    if (rng() % 3 == 0) {
      call.repetition[r] = pick(1.f, 1.2f, 0.8f, 1e-30f);
      call.presence[r] = pick(0.f, 0.5f);
      call.frequency[r] = pick(0.f, -0.2f, 0.3f);
      for (uint32_t i = rng() % 30; i > 0; --i) call.tokens[r].push_back(static_cast<int32_t>(rng() % (call.vocab + 2)) - 1);
      call.n_prompt[r] = rng() % 10;
      call.path_length[r] = rng() % 5;
      for (uint32_t i = 0; i < 4; ++i) call.path[r * 4 + i] = static_cast<int32_t>(rng() % call.vocab);
    }
    if (rng() % 4 == 0)
      for (uint32_t i = 1 + rng() % 5; i > 0; --i) {
        call.bias_ids[r].push_back(static_cast<int32_t>(rng() % std::min(call.vocab, 8u)));
        call.bias_values[r].push_back(pick(1.5f, -2.f, -100.f, 30.f));
      }
    if (rng() % 30 == 0) call.top_p[r] = 2;
  }
  call.logprobs = rng() % 2;
  call.n_top = rng() % 3 ? 0 : 1 + rng() % 20;
  if (rng() % 4 == 0) {
    call.mask.resize(uint64_t{call.rows} * ((call.vocab + 31) / 32));
    for (uint32_t& word : call.mask) word = rng() | rng();
  }
}

}  // namespace

TEST(DeviceSampler, EqualsTheCpuTierToTheBit) {
  Rig rig;
  std::mt19937 rng(31);
  for (int round = 0; round < 60; ++round) {
    const uint32_t vocab = round % 6 == 0 ? 1 + rng() % 5 : 1 + rng() % 1500;
    Call call(1 + rng() % 6, vocab, rng() % 5);
    fill_parameters(rng, call);
    SCOPED_TRACE(testing::Message() << "round " << round << " vocab " << vocab);
    expect_equal(on_cpu(call), rig.run(call), call);
    if (HasFatalFailure()) return;
  }
  const WayCounts& counts = rig.sampler.counts();
  EXPECT_GT(counts.found, 100u);
  EXPECT_GT(counts.whole, 3u);
  EXPECT_GT(counts.undecided, 3u);
}

// Rows of several blocks, whose lists do not hold everything.
TEST(DeviceSampler, LongRowsEqualTheCpuTier) {
  Rig rig(40000);
  std::mt19937 rng(32);
  for (int round = 0; round < 8; ++round) {
    Call call(3, 40000 - 7 * static_cast<uint32_t>(round), rng() % 2);
    fill_parameters(rng, call);
    SCOPED_TRACE(round);
    expect_equal(on_cpu(call), rig.run(call), call);
    if (HasFatalFailure()) return;
  }
  // What a model gives, at common settings: the head of the order decides.
  Call call(4, 40000);
  call.logprobs = true;
  call.n_top = 5;
  for (uint32_t r = 0; r < 4; ++r) {
    fill_row(rng, call.row(r), call.vocab, 0);
    call.temperature[r] = 0.8f;
    call.seed[r] = r;
  }
  call.top_k[1] = 40;
  call.top_p[2] = 0.9f;
  call.repetition[3] = 1.1f;
  call.tokens[3] = {5, 6, 7};
  const uint64_t before = rig.sampler.counts().found;
  expect_equal(on_cpu(call), rig.run(call), call);
  EXPECT_EQ(rig.sampler.counts().found, before + 4);
}

// V15, V16: greedy rows get the same token whatever stands beside them.
TEST(DeviceSampler, ARowDoesNotDependOnItsNeighbours) {
  Rig rig;
  std::mt19937 rng(33);
  Call call(12, 700);
  fill_parameters(rng, call);
  call.mask.clear();
  const Call::Outputs all = rig.run(call);
  for (uint32_t r = 0; r < call.rows; ++r) {
    Call one(1, 700);
    one.logprobs = call.logprobs;
    one.n_top = call.n_top;
    std::copy_n(call.row(r), 700, one.row(0));
    const auto take = [&](auto& to, const auto& from) { to[0] = from[r]; };
    take(one.temperature, call.temperature), take(one.top_k, call.top_k), take(one.top_p, call.top_p), take(one.min_p, call.min_p), take(one.typical_p, call.typical_p);
    take(one.repetition, call.repetition), take(one.presence, call.presence), take(one.frequency, call.frequency), take(one.seed, call.seed), take(one.position, call.position);
    take(one.tokens, call.tokens), take(one.n_prompt, call.n_prompt), take(one.bias_ids, call.bias_ids), take(one.bias_values, call.bias_values);
    take(one.path_length, call.path_length);
    std::copy_n(call.path.begin() + r * 4, 4, one.path.begin());
    const Call::Outputs alone = rig.run(one);
    EXPECT_EQ(alone.ids[0], all.ids[r]);
    EXPECT_EQ(alone.status[0], all.status[r]);
    EXPECT_EQ(std::memcmp(&alone.logprobs[0], &all.logprobs[r], 4), 0);
  }
}

TEST(DeviceSampler, GreedyCostsOneLaunchAndOneWait) {
  Rig rig(3000);
  std::mt19937 rng(34);
  for (const uint32_t rows : {1u, 3u, 16u}) {
    Call call(rows, 3000, 1);
    for (uint32_t r = 0; r < rows; ++r) fill_row(rng, call.row(r), 3000, 1);
    std::fill(call.temperature.begin(), call.temperature.end(), 0.0f);
    rig.run(call);  // the first launch after a start cleans the meeting places
    expect_equal(on_cpu(call), rig.run(call), call);
    EXPECT_EQ(rig.device.counts.launches, 1u);
    EXPECT_EQ(rig.device.counts.copies, 0u);
    EXPECT_EQ(rig.device.counts.fills, 0u);
    EXPECT_EQ(rig.device.counts.syncs, 1u);
    EXPECT_EQ(rig.device.counts.allocations, 0u);
  }
}

TEST(DeviceSampler, SampledRowsCostThreeLaunchesAndOneWait) {
  Rig rig(3000);
  std::mt19937 rng(35);
  Call call(5, 3000);
  for (uint32_t r = 0; r < 5; ++r) fill_row(rng, call.row(r), 3000, 0);
  std::fill(call.temperature.begin(), call.temperature.end(), 0.8f);
  call.temperature[2] = 0;
  rig.run(call);
  expect_equal(on_cpu(call), rig.run(call), call);
  EXPECT_EQ(rig.device.counts.launches, 3u);
  EXPECT_EQ(rig.device.counts.copies, 0u);
  EXPECT_EQ(rig.device.counts.syncs, 1u);
  EXPECT_EQ(rig.device.counts.allocations, 0u);
  EXPECT_EQ(rig.sampler.counts().undecided, 0u);
}

// More works than travel in the arguments, and edits: one copy to the device, none back.
TEST(DeviceSampler, ManyRowsAndEditsCostOneCopy) {
  Rig rig(1500);
  std::mt19937 rng(38);
  for (const bool many : {true, false}) {
    Call call(many ? 20 : 2, 1500);
    for (uint32_t r = 0; r < call.rows; ++r) {
      fill_row(rng, call.row(r), 1500, 0);
      call.temperature[r] = 0.9f;
      call.top_p[r] = 0.8f;
      call.seed[r] = r;
    }
    if (!many) call.bias_ids[1] = {3}, call.bias_values[1] = {2.0f};
    rig.run(call);
    expect_equal(on_cpu(call), rig.run(call), call);
    EXPECT_EQ(rig.device.counts.launches, 3u);
    EXPECT_EQ(rig.device.counts.copies, 1u);
    EXPECT_EQ(rig.device.counts.syncs, 1u);
  }
  EXPECT_EQ(rig.sampler.counts().undecided, 0u);
}

// A list is as long as its draw needs: whatever limits the draw, the row is decided and nothing of it is copied.
TEST(DeviceSampler, ListsHoldWhatTheDrawLooksAt) {
  constexpr uint32_t kVocab = 20000;
  Rig rig(kVocab);
  std::mt19937 rng(39);
  Call call(16, kVocab);
  call.logprobs = true;
  call.n_top = 8;
  for (uint32_t r = 0; r < call.rows; ++r) {
    fill_row(rng, call.row(r), kVocab, r % 2);
    if (r % 2) std::for_each(call.row(r), call.row(r) + kVocab, [](float& x) { x *= 4; });
    call.seed[r] = r, call.position[r] = 3;
    call.temperature[r] = r % 3 == 0 ? 1.0f : r % 3 == 1 ? 0.6f : 1.4f;
    if (r % 4 == 0) call.top_k[r] = 1 + 50 * r;
    else if (r % 4 == 1) call.top_p[r] = 0.3f + 0.02f * static_cast<float>(r);
    else if (r % 4 == 2) call.min_p[r] = r == 2 ? 1.0f : 0.2f / static_cast<float>(r);
    else call.temperature[r] = 0.5f;
    if (r == 9) call.typical_p[r] = 0.7f;
    if (r >= 12) call.bias_ids[r] = {7, 100}, call.bias_values[r] = {-100.0f, 3.0f};
  }
  expect_equal(on_cpu(call), rig.run(call), call);
  EXPECT_EQ(rig.sampler.counts().found, call.rows);
  EXPECT_EQ(rig.sampler.counts().undecided, 0u);
  EXPECT_EQ(rig.sampler.counts().whole, 0u);
}

// V11: whatever a failed launch left behind, the next call is right.
TEST(DeviceSampler, AFailedLaunchSpoilsNothing) {
  std::mt19937 rng(36);
  for (int which = 0; which < 4; ++which) {
    Rig rig;
    Call call(3, 500);
    for (uint32_t r = 0; r < 3; ++r) fill_row(rng, call.row(r), 500, 0);
    if (which == 3) std::fill(call.temperature.begin(), call.temperature.end(), 0.0f);
    rig.run(call);
    rig.device.fail_in = which == 3 ? 0 : which;
    EXPECT_THROW(rig.run(call), Failure);
    rig.device.fail_in = -1;
    expect_equal(on_cpu(call), rig.run(call), call);
    EXPECT_EQ(rig.device.counts.fills, 1u);
  }
}

// Larger calls than there is memory for are served in rounds; none at all is an error.
TEST(DeviceSampler, LittleMemoryMeansMoreRounds) {
  std::mt19937 rng(37);
  Rig rig(600);
  rig.device.memory_limit = rig.device.bytes() + 200000;  // for the test's own logits and lists of masks
  Call call(30, 600);
  for (uint32_t r = 0; r < 30; ++r) fill_row(rng, call.row(r), 600, r % 3);
  std::fill(call.temperature.begin(), call.temperature.end(), 1.1f);
  call.typical_p[4] = call.typical_p[5] = call.typical_p[29] = 0.5f;
  expect_equal(on_cpu(call), rig.run(call), call);
  EXPECT_GT(rig.device.counts.syncs, 3u);
  Call huge(1, 60000);
  fill_row(rng, huge.row(0), 60000, 0);
  rig.device.memory_limit = rig.device.bytes() + 250000;
  EXPECT_THROW(rig.run(huge), Failure);
  expect_equal(on_cpu(call), rig.run(call), call);
}

TEST(DeviceSampler, GivesBackAllMemory) {
  FiberDevice device;
  {
    DeviceSampler sampler(device.api(), 5000);
    EXPECT_GT(device.n_blocks(), 0u);
  }
  EXPECT_EQ(device.n_blocks(), 0u);
  device.memory_limit = 100000;
  EXPECT_THROW(DeviceSampler(device.api(), 50000), Failure);
  EXPECT_EQ(device.n_blocks(), 0u);
}

}  // namespace turbo::sample_standard
