// fp8_e4m3 and fp8_e5m2: every code and every tie, and attention against plain loops on every ISA.
#include "fixture.h"

#include <turbo/kernel/half.h>
#include <turbo/kernel/lanes.h>

#include <cmath>
#include <limits>

namespace turbo::test {
namespace {

struct Format {
  const char* name;
  int mantissa, bias;
  int last;  // largest finite code
};
const Format kFormats[] = {{"fp8_e4m3", 3, 7, 0x7e}, {"fp8_e5m2", 2, 15, 0x7b}};

double value_of(const Format& f, int code) {
  const int exponent = code >> f.mantissa, m = code & ((1 << f.mantissa) - 1);
  return exponent ? std::ldexp(1.0 + std::ldexp(m, -f.mantissa), exponent - f.bias) : std::ldexp(m, 1 - f.bias - f.mantissa);
}

// Nearest code of a magnitude, ties to the even one, beyond the last: the last.
int nearest(const Format& f, double x) {
  x = std::fmin(x, value_of(f, f.last));
  int best = 0;
  for (int code = 1; code <= f.last; ++code) {
    const double d = std::fabs(value_of(f, code) - x), b = std::fabs(value_of(f, best) - x);
    if (d < b || (d == b && code % 2 == 0)) best = code;
  }
  return best;
}

TEST(KvFp8, EveryCodeAndEveryTieRoundsAsTheStandardSays) {
  for (const Format& f : kFormats)
    for (const std::string& isa : usable_isas(library().component(f.name))) {
      Codec codec({f.name, {}}, isa);
      std::vector<float> inputs;
      for (int code = 0; code <= f.last; ++code) {
        const float x = static_cast<float>(value_of(f, code));
        inputs.push_back(x);
        if (code == f.last) break;
        const float middle = static_cast<float>((value_of(f, code) + value_of(f, code + 1)) / 2);
        for (const float y : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) inputs.push_back(y);
      }
      const float top = static_cast<float>(value_of(f, f.last));
      for (const float x : {top * 1.03f, top * 1.1f, top * 2, 3e38f, 1e-30f, 1e-42f}) inputs.push_back(x);
      for (size_t i = 0, n = inputs.size(); i < n; ++i) inputs.push_back(-inputs[i]);
      const auto shape = shape_of(TURBO_KV_SIDE_V, 1, 17);
      inputs.resize((inputs.size() + 16) / 17 * 17, 0.0f);
      Block block(codec, shape, 0x55);
      for (size_t i = 0; i < inputs.size(); i += 17) {
        ASSERT_EQ(codec->append(codec.self(), &shape, block.base, 9, &inputs[i], 0, 1), TURBO_OK);
        float back[17];
        codec->decode_row(codec.self(), &shape, 0, block.base, 9, back);
        for (size_t e = 0; e < 17; ++e) {
          const int code = nearest(f, std::fabs(static_cast<double>(inputs[i + e]))) | (std::signbit(inputs[i + e]) ? 0x80 : 0);
          ASSERT_EQ(block.base[9 * 17 + e], code) << f.name << " " << isa << " of " << inputs[i + e];
          const float want = std::copysign(static_cast<float>(value_of(f, code & 0x7f)), inputs[i + e]);
          ASSERT_TRUE(same_bits(&back[e], &want, 1)) << f.name << " code " << code;
        }
      }
    }
}

// The scale is amax / 448 in binary16, and codes are made with it as stored.
TEST(KvFp8, ScaleOfARowBringsItsLargestTo448) {
  const auto shape = shape_of(TURBO_KV_SIDE_K, 1, 80);
  for (const Format& f : kFormats) {
    Codec codec({f.name, {{"scale", "head"}}});
    Block block(codec, shape, 0);
    EXPECT_EQ(block.layout.packed_block_bytes, 64u * 82);
    for (const float size : {1e-3f, 1.0f, 300.0f, 1e7f, 3e8f}) {
      std::vector<float> x = gaussian(80, 3), back(80);
      float largest = 0;
      for (float& value : x) largest = std::fmax(largest, std::fabs(value *= size));
      ASSERT_EQ(codec->append(codec.self(), &shape, block.base, 5, x.data(), 0, 1), TURBO_OK);
      uint16_t stored;
      std::memcpy(&stored, block.base + 64 * 80 + 5 * 2, 2);
      ASSERT_EQ(stored, turbo_f32_to_f16(std::fmin(largest / 448.0f, 65504.0f)));
      const float scale = turbo_f16_to_f32(stored);
      codec->decode_row(codec.self(), &shape, 0, block.base, 5, back.data());
      for (size_t e = 0; e < 80; ++e) {
        const float step = std::copysign(static_cast<float>(value_of(f, nearest(f, std::fabs(static_cast<double>(x[e] / scale))))), x[e]);
        const float want = step * scale;
        ASSERT_TRUE(same_bits(&back[e], &want, 1)) << f.name << " size " << size << " element " << e;
      }
    }
    const std::vector<float> nothing(80, 1e-9f);
    std::vector<float> back(80);
    ASSERT_EQ(codec->append(codec.self(), &shape, block.base, 5, nothing.data(), 0, 1), TURBO_OK);
    codec->decode_row(codec.self(), &shape, 0, block.base, 5, back.data());
    EXPECT_EQ(back, std::vector<float>(80, 0.0f));
  }
}

// Every cut of a run and every number of queries gives the bits of the plain loop; what lies ahead is not read.
TEST(KvFp8, ScoresAndValuesEqualThePlainLoopOnEveryIsa) {
  std::mt19937 random(4);
  for (const Format& f : kFormats)
    for (const char* scale : {"none", "head"})
      for (const std::string& isa : usable_isas(library().component(f.name)))
        for (uint32_t dim : {7u, 64u, 72u, 80u, 96u, 128u, 256u}) {
          Codec codec({f.name, {{"scale", scale}}}, isa);
          const auto shape = shape_of(TURBO_KV_SIDE_K, 2, dim);
          Block block(codec, shape, 0xff);
          const uint64_t head_bytes = block.layout.packed_block_bytes / 2;
          const uint32_t qf = block.layout.query_floats, most = 9;
          fill(codec, shape, block.base, gaussian(64 * 2 * dim, dim));
          const std::vector<float> queries = gaussian(most * dim, 5), weights = gaussian(most * 64, 6);
          std::vector<float> prepared(most * qf), code_values(dim);
          for (uint32_t q = 0; q < most; ++q) codec->prepare_query(codec.self(), &shape, 0, &queries[q * dim], &prepared[q * qf]);
          void* const nowhere = reinterpret_cast<void*>(uintptr_t{4096});
          for (uint32_t nq : {1u, 2u, 3u, 4u, 5u, most}) {
            const uint32_t begin = random() % 64, n = 1 + random() % (64 - begin), cut = random() % n, head = random() % 2;
            std::vector<float> scores(most * 64, -1.0f), sums(most * qf, 0.0f), out(dim);
            for (auto [from, count] : {std::pair{0u, cut}, std::pair{cut, n - cut}}) {
              if (!count) continue;
              const turbo_kv_run run{sizeof(turbo_kv_run), 1, block.base, begin + from, count, head, nq, random() % 2 ? nowhere : nullptr};
              codec->qk_scores(codec.self(), &shape, &run, prepared.data(), qf, scores.data() + from, 64);
              codec->pv_accumulate(codec.self(), &shape, &run, weights.data() + from, 64, sums.data(), qf);
            }
            for (uint32_t q = 0; q < nq; ++q) {
              std::vector<float> want(dim, 0.0f);
              for (uint32_t i = 0; i < n; ++i) {
                const uint8_t* row = block.base + head * head_bytes + (begin + i) * dim;
                float g = 1.0f;
                if (std::string(scale) == "head") {
                  uint16_t half;
                  std::memcpy(&half, block.base + head * head_bytes + 64 * dim + (begin + i) * 2, 2);
                  g = turbo_f16_to_f32(half);
                }
                for (uint32_t e = 0; e < dim; ++e)
                  code_values[e] = std::copysign(static_cast<float>(value_of(f, row[e] & 0x7f)), row[e] & 0x80 ? -1.0f : 1.0f);
                const float score = turbo_dot_f32(&queries[q * dim], code_values.data(), dim) * g;
                ASSERT_TRUE(same_bits(&scores[q * 64 + i], &score, 1)) << f.name << " " << isa << " dim " << dim << " nq " << nq;
                for (uint32_t e = 0; e < dim; ++e) want[e] = fmaf(weights[q * 64 + i] * g, code_values[e], want[e]);
              }
              codec->finish_output(codec.self(), &shape, 1, &sums[q * qf], out.data());
              ASSERT_TRUE(same_bits(out.data(), want.data(), dim)) << f.name << " " << isa << " dim " << dim;
            }
            for (uint32_t i = n; i < 64; ++i) ASSERT_EQ(scores[i], -1.0f);
          }
        }
}

}  // namespace
}  // namespace turbo::test
