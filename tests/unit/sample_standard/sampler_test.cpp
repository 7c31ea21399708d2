// The component through its ABI table. Compiled into the test program of each tier, whose sampler_tier.h makes the
// component and hands it batches whose logits lie where the tier wants them.
#include <gtest/gtest.h>
#include <turbo/abi/sampler.h>
#include <turbo/fake/host.hpp>
#include <turbo/kernel/random.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include <sampler_tier.h>  // of the folder that builds this program

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// A batch with one request per row unless told otherwise.
struct Batch {
  explicit Batch(uint32_t rows, uint32_t vocab) : vocab(vocab), logits(uint64_t{rows} * vocab), seed(rows), temperature(rows, 1.0f), request(rows), position(rows) {
    std::iota(request.begin(), request.end(), 0u);
    params.struct_size = sizeof params;
    params.n_requests = rows;
  }
  uint32_t vocab;
  std::vector<float> logits;
  std::vector<uint64_t> seed;
  std::vector<float> temperature;
  std::vector<uint32_t> request;
  std::vector<uint64_t> position;
  turbo_sampling_params params{};
  uint32_t n_top = 0;
  turbo_sample args{};
  std::vector<int32_t> ids, top_ids;
  std::vector<float> logprobs, top_logprobs;
  std::vector<turbo_status> status;

  turbo_sample& build() {
    const auto rows = static_cast<uint32_t>(request.size());
    ids.assign(rows, -7);
    logprobs.assign(rows, 7);
    status.assign(rows, -7);
    top_ids.assign(uint64_t{rows} * n_top, -7);
    top_logprobs.assign(uint64_t{rows} * n_top, 7);
    params.seed = seed.data();
    params.temperature = temperature.data();
    args.struct_size = sizeof args;
    args.n_rows = rows;
    args.vocab = vocab;
    args.n_top = n_top;
    args.logits = logits.data();
    args.logit_stride = vocab;
    args.params = &params;
    args.row_request = request.data();
    args.row_position = position.data();
    args.ids = ids.data();
    args.logprobs = logprobs.data();
    args.top_ids = top_ids.data();
    args.top_logprobs = top_logprobs.data();
    args.row_status = status.data();
    return args;
  }
};

class SamplerTest : public testing::Test {
 protected:
  turbo::fake::Host host;
  SamplerTier tier{host};
  turbo::fake::Component& component = tier.component;
  const turbo_sampler* table = component.interface<turbo_sampler>(TURBO_SAMPLER_1);
  turbo_status sample(Batch& batch) { return tier.sample(table, batch.build()); }
};

void fill(Batch& batch, uint64_t seed) {
  for (size_t i = 0; i < batch.logits.size(); ++i) batch.logits[i] = static_cast<float>((turbo_uniform(seed, i) - 0.5) * 8);
}

}  // namespace

TEST_F(SamplerTest, UnknownInterfaceIsNull) {
  EXPECT_EQ(component.descriptor().query_interface("turbo.sampler/2"), nullptr);
  EXPECT_EQ(component.descriptor().query_interface(nullptr), nullptr);
}

TEST_F(SamplerTest, DrawsFollowTheDistribution) {
  constexpr uint32_t kVocab = 6;
  constexpr uint64_t kDraws = SamplerTier::kDraws, kRows = std::min<uint64_t>(1000, kDraws);
  const float x[kVocab] = {0.0f, 1.5f, -1.0f, 0.7f, 2.0f, -3.0f};
  double p[kVocab], sum = 0;
  for (uint32_t i = 0; i < kVocab; ++i) sum += p[i] = std::exp(static_cast<double>(x[i]) / 0.9);
  uint64_t seen[kVocab] = {};
  Batch batch(kRows, kVocab);
  std::fill(batch.temperature.begin(), batch.temperature.end(), 0.9f);
  for (uint64_t r = 0; r < kRows; ++r) std::copy(x, x + kVocab, batch.logits.begin() + static_cast<long>(r * kVocab));
  for (uint64_t begin = 0; begin < kDraws; begin += kRows) {
    for (uint64_t r = 0; r < kRows; ++r) batch.position[r] = begin + r, batch.seed[r] = 42;
    ASSERT_EQ(sample(batch), TURBO_OK);
    for (const int32_t id : batch.ids) ++seen[id];
  }
  double chi2 = 0;
  for (uint32_t i = 0; i < kVocab; ++i) {
    const double expected = p[i] / sum * kDraws;
    chi2 += (static_cast<double>(seen[i]) - expected) * (static_cast<double>(seen[i]) - expected) / expected;
  }
  EXPECT_LT(chi2, 25.74);  // 5 degrees of freedom, p = 1e-4
}

TEST_F(SamplerTest, SeedAndPositionDecideTheDraw) {
  Batch a(64, 100), b(64, 100);
  fill(a, 1);
  for (size_t r = 1; r < 64; ++r) std::copy_n(a.logits.begin(), 100, a.logits.begin() + static_cast<long>(r * 100));
  b.logits = a.logits;
  for (uint64_t r = 0; r < 64; ++r) a.seed[r] = b.seed[r] = 5, a.position[r] = b.position[r] = r;
  ASSERT_EQ(sample(a), TURBO_OK);
  ASSERT_EQ(sample(b), TURBO_OK);
  EXPECT_EQ(a.ids, b.ids);
  for (auto& s : b.seed) s = 6;
  ASSERT_EQ(sample(b), TURBO_OK);
  EXPECT_NE(a.ids, b.ids);
  for (uint64_t r = 0; r < 64; ++r) b.seed[r] = 5, b.position[r] = r + 1;
  ASSERT_EQ(sample(b), TURBO_OK);
  EXPECT_TRUE(std::equal(a.ids.begin() + 1, a.ids.end(), b.ids.begin()));
}

TEST_F(SamplerTest, ARowGivesTheSameBitsAloneAndInAnyBatch) {
  constexpr uint32_t kRows = 24, kVocab = 777;
  Batch all(kRows, kVocab);
  fill(all, 9);
  all.n_top = 5;
  all.logits[3 * kVocab + 5] = NAN;
  std::vector<int32_t> top_k(kRows, 0);
  std::vector<float> top_p(kRows, 1.0f), repetition(kRows, 1.0f);
  std::vector<int32_t> history = {1, 2, 3, 700, 2};
  std::vector<const int32_t*> tokens(kRows, history.data());
  std::vector<uint32_t> n_tokens(kRows, 5), n_prompt(kRows, 2);
  for (uint32_t r = 0; r < kRows; ++r) {
    all.position[r] = r * 3;
    all.seed[r] = r * r;
    all.temperature[r] = r % 4 == 0 ? 0.0f : 0.5f + 0.1f * static_cast<float>(r % 5);
    top_k[r] = r % 3 == 0 ? 20 : 0;
    top_p[r] = r % 2 ? 0.8f : 1.0f;
    repetition[r] = r % 5 == 0 ? 1.4f : 1.0f;
  }
  const auto attach = [&](Batch& b, uint32_t first) {
    b.params.top_k = &top_k[first];
    b.params.top_p = &top_p[first];
    b.params.repetition_penalty = &repetition[first];
    b.params.tokens = &tokens[first];
    b.params.n_tokens = &n_tokens[first];
    b.params.n_prompt = &n_prompt[first];
  };
  attach(all, 0);
  ASSERT_EQ(sample(all), TURBO_OK);
  for (uint32_t r = kRows; r-- > 0;) {
    Batch one(1, kVocab);
    one.n_top = 5;
    std::copy_n(all.logits.begin() + static_cast<long>(r) * kVocab, kVocab, one.logits.begin());
    one.position[0] = all.position[r];
    one.seed[0] = all.seed[r];
    one.temperature[0] = all.temperature[r];
    attach(one, r);
    ASSERT_EQ(sample(one), TURBO_OK);
    EXPECT_EQ(one.ids[0], all.ids[r]);
    EXPECT_EQ(one.status[0], all.status[r]);
    EXPECT_EQ(std::memcmp(&one.logprobs[0], &all.logprobs[r], 4), 0);
    EXPECT_TRUE(std::equal(one.top_ids.begin(), one.top_ids.end(), all.top_ids.begin() + r * 5));
    EXPECT_EQ(std::memcmp(one.top_logprobs.data(), &all.top_logprobs[r * 5], 20), 0);
  }
  EXPECT_EQ(all.status[3], TURBO_CORRUPT_INPUT);
  EXPECT_EQ(all.ids[3], -1);
}

TEST_F(SamplerTest, ABadRowDoesNotHurtItsNeighbours) {
  Batch batch(4, 3);
  fill(batch, 2);
  std::fill_n(batch.logits.begin(), 3, -kInf);
  std::vector<float> top_p = {1, NAN, 1, 1};
  batch.params.top_p = top_p.data();
  batch.request[2] = 9;  // no such request
  ASSERT_EQ(sample(batch), TURBO_OK);
  EXPECT_EQ(batch.status, (std::vector<turbo_status>{TURBO_NOT_FOUND, TURBO_INVALID_ARGUMENT, TURBO_INVALID_ARGUMENT, TURBO_OK}));
  EXPECT_EQ(batch.ids[0], -1);
  EXPECT_EQ(batch.ids[1], -1);
  EXPECT_EQ(batch.ids[2], -1);
  EXPECT_GE(batch.ids[3], 0);
}

TEST_F(SamplerTest, MasksSelectPerRow) {
  Batch batch(2, 70);
  fill(batch, 4);
  std::vector<uint32_t> mask(2 * 4);
  mask[2] = 1u << 5;      // row 0: token 69
  mask[4] = 1u << 31;     // row 1: token 31
  batch.args.mask = mask.data();
  batch.args.mask_stride = 4;
  for (const float t : {0.0f, 1.0f}) {
    std::fill(batch.temperature.begin(), batch.temperature.end(), t);
    ASSERT_EQ(sample(batch), TURBO_OK);
    EXPECT_EQ(batch.ids, (std::vector<int32_t>{69, 31}));
    EXPECT_LT(batch.logprobs[0], 0);  // the model's own distribution, not the masked one
  }
}

TEST_F(SamplerTest, LogprobsDescribeTheModelBeforeEverything) {
  Batch batch(1, 30);
  fill(batch, 6);
  batch.n_top = 20;
  batch.temperature[0] = 0;
  const int32_t ban[] = {0};
  const float bias[] = {-100};
  int32_t best = static_cast<int32_t>(std::max_element(batch.logits.begin(), batch.logits.end()) - batch.logits.begin());
  const int32_t banned[] = {best};
  (void)ban;
  const int32_t* ids[] = {banned};
  const float* values[] = {bias};
  const uint32_t n[] = {1};
  batch.params.bias_ids = ids;
  batch.params.bias_values = values;
  batch.params.n_bias = n;
  ASSERT_EQ(sample(batch), TURBO_OK);
  double sum = 0;
  for (const float x : batch.logits) sum += std::exp(static_cast<double>(x));
  const auto own = [&](int32_t id) { return static_cast<double>(batch.logits[static_cast<size_t>(id)]) - std::log(sum); };
  EXPECT_NE(batch.ids[0], best);
  EXPECT_EQ(batch.top_ids[0], best);
  EXPECT_EQ(batch.top_ids[1], batch.ids[0]);
  EXPECT_NEAR(batch.logprobs[0], own(batch.ids[0]), 1e-6);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_NEAR(batch.top_logprobs[i], own(batch.top_ids[i]), 1e-6);
    if (i) { EXPECT_GE(batch.top_logprobs[i - 1], batch.top_logprobs[i]); }
  }
}

TEST_F(SamplerTest, TopLogprobsOutliveATopKCutAndASmallVocabulary) {
  Batch batch(1, 3);
  fill(batch, 8);
  batch.n_top = 5;
  std::vector<int32_t> top_k = {1};
  batch.params.top_k = top_k.data();
  ASSERT_EQ(sample(batch), TURBO_OK);
  EXPECT_GE(batch.top_ids[2], 0);
  EXPECT_EQ(batch.top_ids[3], -1);
  EXPECT_EQ(batch.top_logprobs[4], -kInf);
}

TEST_F(SamplerTest, NullParametersMeanNeutral) {
  Batch a(8, 20), b(8, 20);
  fill(a, 3);
  b.logits = a.logits;
  for (uint64_t r = 0; r < 8; ++r) a.position[r] = b.position[r] = r;
  ASSERT_EQ(sample(a), TURBO_OK);  // temperature 1, seed 0
  turbo_sample& args = b.build();
  b.params.temperature = nullptr;
  b.params.seed = nullptr;
  args.logprobs = nullptr;
  ASSERT_EQ(tier.sample(table, args), TURBO_OK);
  EXPECT_EQ(a.ids, b.ids);
}

TEST_F(SamplerTest, BrokenCallsAreRefused) {
  Batch batch(1, 3);
  turbo_error error{};
  error.struct_size = sizeof error;
  EXPECT_EQ(table->sample(component.self(), nullptr, &error), TURBO_INVALID_ARGUMENT);
  EXPECT_STRNE(error.message, "");
  turbo_sample args = batch.build();
  args.struct_size = 16;
  EXPECT_EQ(table->sample(component.self(), &args, &error), TURBO_INVALID_ARGUMENT);
  args = batch.build();
  args.ids = nullptr;
  EXPECT_EQ(table->sample(component.self(), &args, &error), TURBO_INVALID_ARGUMENT);
  args = batch.build();
  args.n_top = 2;
  args.top_ids = nullptr;
  EXPECT_EQ(table->sample(component.self(), &args, &error), TURBO_INVALID_ARGUMENT);
  args = batch.build();
  args.n_rows = 0;
  args.logits = nullptr;
  EXPECT_EQ(table->sample(component.self(), &args, &error), TURBO_OK);
}

TEST_F(SamplerTest, SpeculationAndPlainDecodingDrawTheSameTokens) {
  // Row d of a verify step sees the path above it; plain decoding sees those tokens as output.
  constexpr uint32_t kVocab = 50, kDepth = 6;
  std::vector<int32_t> history = {4, 7, 7, 1};
  std::vector<float> model(kDepth * kVocab);
  for (size_t i = 0; i < model.size(); ++i) model[i] = static_cast<float>((turbo_uniform(77, i) - 0.5) * 5);
  std::vector<float> repetition(1, 1.3f), presence(1, 0.6f), frequency(1, 0.2f);
  std::vector<uint32_t> n_prompt = {2};
  const auto common = [&](Batch& b) {
    b.params.n_requests = 1;
    b.params.repetition_penalty = repetition.data();
    b.params.presence_penalty = presence.data();
    b.params.frequency_penalty = frequency.data();
    b.params.n_prompt = n_prompt.data();
    b.seed[0] = 99;
    b.temperature[0] = 1.1f;
    std::fill(b.request.begin(), b.request.end(), 0u);
  };
  std::vector<int32_t> plain;
  for (uint32_t d = 0; d < kDepth; ++d) {
    Batch one(1, kVocab);
    common(one);
    std::vector<int32_t> all = history;
    all.insert(all.end(), plain.begin(), plain.end());
    const int32_t* tokens[] = {all.data()};
    const uint32_t n[] = {static_cast<uint32_t>(all.size())};
    one.params.tokens = tokens;
    one.params.n_tokens = n;
    one.position[0] = 4 + d;
    std::copy_n(model.begin() + d * kVocab, kVocab, one.logits.begin());
    ASSERT_EQ(sample(one), TURBO_OK);
    plain.push_back(one.ids[0]);
  }
  Batch verify(kDepth, kVocab);
  common(verify);
  const int32_t* tokens[] = {history.data()};
  const uint32_t n[] = {4};
  verify.params.tokens = tokens;
  verify.params.n_tokens = n;
  verify.logits = model;
  std::vector<int32_t> path(kDepth * kDepth, -1);
  std::vector<uint32_t> length(kDepth);
  for (uint32_t d = 0; d < kDepth; ++d) {
    verify.position[d] = 4 + d;
    length[d] = d;
    std::copy_n(plain.begin(), d, path.begin() + d * kDepth);
  }
  verify.args.path = path.data();
  verify.args.path_length = length.data();
  verify.args.path_stride = kDepth;
  ASSERT_EQ(sample(verify), TURBO_OK);
  EXPECT_EQ(verify.ids, plain);
}
