// f32, f16 and bf16 through the ABI: stored bits, scores and values against the plain loops of turbo/kernel/lanes.h,
// on every ISA of the machine. The narrow codecs have files of their own.
#include "fixture.h"

#include <turbo/kernel/half.h>
#include <turbo/kernel/lanes.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace turbo::test {
namespace {

float stored_value(const std::string& name, float x) {
  if (name == "f32") return x;
  if (name == "f16") return turbo_f16_to_f32(turbo_f32_to_f16(std::fmin(std::fmax(x, -65504.0f), 65504.0f)));
  const uint32_t top = 0x7f7f0000u;
  float largest;
  std::memcpy(&largest, &top, 4);
  return turbo_bf16_to_f32(turbo_f32_to_bf16(std::fmin(std::fmax(x, -largest), largest)));
}

TEST(KvFloat, RoundTripIsTheStoredValueAndPaddingStaysUntouched) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const char* name : {"f32", "f16", "bf16"})
    for (const std::string& isa : usable_isas(library().component(name)))
      for (uint32_t dim : {1u, 16u, 80u, 96u, 97u, 128u, 512u}) {
        CodecInstance codec(library().component(name), TURBO_KV_CODEC_DRAFT, bare_host(), isa);
        ASSERT_TRUE(codec.ok()) << codec.message();
        const auto shape = shape_of(TURBO_KV_SIDE_K, 3, dim);
        Block block(codec, shape, 0xff);
        std::vector<float> src(3 * dim), back(3 * dim);
        for (float& x : src) x = normal(random) * std::exp(8 * normal(random));
        src[0] = 1e30f;
        src[dim] = -std::numeric_limits<float>::infinity();
        src[2 * dim] = 3e-8f;
        ASSERT_EQ(codec->append(codec.self(), &shape, block.base, 5, src.data(), 0, 2), TURBO_OK);
        ASSERT_EQ(codec->append(codec.self(), &shape, block.base, 5, src.data(), 2, 3), TURBO_OK);
        codec->decode_row(codec.self(), &shape, TURBO_KV_FORM_OPEN, block.base, 5, back.data());
        for (size_t i = 0; i < src.size(); ++i) {
          const float want = stored_value(name, src[i]);
          ASSERT_TRUE(same_bits(&back[i], &want, 1)) << name << " " << isa << " dim " << dim << " element " << i;
        }
        const uint64_t element = std::string(name) == "f32" ? 4 : 2, pitch = (dim * element + 63) / 64 * 64;
        ASSERT_EQ(block.layout.packed_block_bytes, pitch * 64 * 3);
        for (uint64_t head = 0; head < 3; ++head)
          for (uint64_t row = 0; row < 64; ++row)
            for (uint64_t i = row == 5 ? dim * element : 0; i < pitch; ++i)
              ASSERT_EQ(block.base[(head * 64 + row) * pitch + i], 0xff);
      }
}

TEST(KvFloat, NanIsRefusedAndNothingOfItsHeadWritten) {
  for (const char* name : {"f32", "f16", "bf16"}) {
    CodecInstance codec(library().component(name), TURBO_KV_CODEC_DRAFT, bare_host());
    ASSERT_TRUE(codec.ok());
    const auto shape = shape_of(TURBO_KV_SIDE_V, 1, 80);
    Block block(codec, shape, 0x11);
    std::vector<float> src(80, 1.0f);
    src[79] = std::nanf("");
    const auto before = block.raw;
    EXPECT_EQ(codec->append(codec.self(), &shape, block.base, 0, src.data(), 0, 1), TURBO_CORRUPT_INPUT);
    EXPECT_EQ(block.raw, before);
  }
}

// Every head size, query count and cut of a run gives the bits of the plain loop; garbage in the padding is unread.
TEST(KvFloat, ScoresAndValuesEqualThePlainLoopOnEveryIsa) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (const char* name : {"f32", "f16", "bf16"})
    for (const std::string& isa : usable_isas(library().component(name)))
      for (uint32_t dim : {7u, 16u, 64u, 80u, 128u, 200u, 256u}) {
        CodecInstance codec(library().component(name), TURBO_KV_CODEC_DRAFT, bare_host(), isa);
        ASSERT_TRUE(codec.ok()) << codec.message();
        const auto shape = shape_of(TURBO_KV_SIDE_K, 2, dim);
        Block block(codec, shape, 0xff);
        const uint32_t qf = block.layout.query_floats, n_queries = 5;
        std::vector<float> rows(64 * 2 * dim), stored(rows.size());
        for (float& x : rows) x = normal(random);
        for (uint32_t r = 0; r < 64; ++r) ASSERT_EQ(codec->append(codec.self(), &shape, block.base, r, &rows[r * 2 * dim], 0, 2), TURBO_OK);
        for (size_t i = 0; i < rows.size(); ++i) stored[i] = stored_value(name, rows[i]);
        std::vector<float> query(n_queries * dim), prepared(n_queries * qf), weights(n_queries * 64);
        for (float& x : query) x = normal(random);
        for (float& x : weights) x = std::fabs(normal(random));
        for (uint32_t q = 0; q < n_queries; ++q) codec->prepare_query(codec.self(), &shape, 0, &query[q * dim], &prepared[q * qf]);
        void* const nowhere = reinterpret_cast<void*>(uintptr_t{4096});  // a block ahead is never read
        for (uint32_t nq = 1; nq <= n_queries; ++nq) {
          const uint32_t begin = random() % 64, n = 1 + random() % (64 - begin), cut = random() % n, head = random() % 2;
          std::vector<float> scores(n_queries * 64, -1.0f), out(n_queries * qf, 0.0f);
          for (auto [from, count] : {std::pair{0u, cut}, std::pair{cut, n - cut}}) {
            if (!count) continue;
            const turbo_kv_run run{sizeof(turbo_kv_run), 0, block.base, begin + from, count, head, nq, random() % 2 ? nowhere : nullptr};
            codec->qk_scores(codec.self(), &shape, &run, prepared.data(), qf, scores.data() + from, 64);
            codec->pv_accumulate(codec.self(), &shape, &run, weights.data() + from, 64, out.data(), qf);
          }
          for (uint32_t q = 0; q < nq; ++q) {
            std::vector<float> want(dim, 0.0f);
            for (uint32_t i = 0; i < n; ++i) {
              const float* key = &stored[((begin + i) * 2 + head) * dim];
              const float score = turbo_dot_f32(&query[q * dim], key, dim);
              ASSERT_TRUE(same_bits(&scores[q * 64 + i], &score, 1)) << name << " " << isa << " dim " << dim << " nq " << nq;
              for (uint32_t e = 0; e < dim; ++e) want[e] = fmaf(weights[q * 64 + i], key[e], want[e]);
            }
            ASSERT_TRUE(same_bits(&out[q * qf], want.data(), dim)) << name << " " << isa << " dim " << dim;
          }
          for (uint32_t i = n; i < 64; ++i) ASSERT_EQ(scores[i], -1.0f);
        }
      }
}

TEST(KvFloat, MoveRowCopiesAllHeadsExactly) {
  CodecInstance codec(library().component("f16"), TURBO_KV_CODEC_DRAFT, bare_host());
  ASSERT_TRUE(codec.ok());
  const auto shape = shape_of(TURBO_KV_SIDE_K, 2, 24);
  Block a(codec, shape, 0), b(codec, shape, 0);
  std::vector<float> src(48), back(48);
  for (size_t i = 0; i < src.size(); ++i) src[i] = static_cast<float>(i) * 0.25f;
  ASSERT_EQ(codec->append(codec.self(), &shape, a.base, 63, src.data(), 0, 2), TURBO_OK);
  codec->move_row(codec.self(), &shape, a.base, 63, b.base, 0);
  codec->decode_row(codec.self(), &shape, 0, b.base, 0, back.data());
  EXPECT_EQ(src, back);
}

TEST(KvFloat, LayoutRefusesImpossibleShapes) {
  CodecInstance codec(library().component("f16"), TURBO_KV_CODEC_DRAFT, bare_host());
  ASSERT_TRUE(codec.ok());
  turbo_kv_layout layout{sizeof(turbo_kv_layout)};
  turbo_error error{sizeof(turbo_error)};
  for (auto [heads, dim] : {std::pair{1u, 0u}, std::pair{1u, 513u}, std::pair{0u, 64u}, std::pair{0xffffffffu, 64u}}) {
    const auto shape = shape_of(TURBO_KV_SIDE_K, heads, dim);
    const turbo_status status = codec->layout(codec.self(), &shape, &layout, &error);
    EXPECT_EQ(status, heads && dim ? TURBO_UNSUPPORTED : TURBO_INVALID_ARGUMENT);
  }
}

TEST(KvFloat, IsaRequestsThatCannotBeMetAreUnusableWithAReason) {
  const turbo_component* f16 = library().component("f16");
  setenv("TURBO_CPU_ISA", "sse9", 1);
  turbo_probe_facts facts{sizeof(turbo_probe_facts), TURBO_TIER_CPU, nullptr, nullptr};
  turbo_probe_result result{sizeof(turbo_probe_result)};
  ASSERT_EQ(f16->probe(bare_host(), &facts, &result, nullptr), TURBO_OK);
  EXPECT_EQ(result.score, 0);
  EXPECT_NE(std::string(result.reason).find("sse9"), std::string::npos);
  EXPECT_EQ(CodecInstance(f16, TURBO_KV_CODEC_DRAFT, bare_host(), "sse9").status(), TURBO_UNSUPPORTED);
}

TEST(KvFloat, FingerprintsDiffer) {
  std::vector<uint64_t> seen;
  for (const char* name : {"f32", "f16", "bf16"}) {
    CodecInstance codec(library().component(name), TURBO_KV_CODEC_DRAFT, bare_host());
    const uint64_t print = codec->fingerprint(codec.self());
    for (uint64_t other : seen) EXPECT_NE(print, other);
    seen.push_back(print);
  }
}

}  // namespace
}  // namespace turbo::test
