// The remaining templates work together: the arch pack runs a program on the weight format, the sampler reads its
// logits; and every manifest says what its library says.
#include "plugins.h"

#include <gtest/gtest.h>
#include <turbo/abi/sampler.h>
#include <turbo/kernel/half.h>
#include <turbo/kernel/lanes.h>
#include <turbo/kernel/random.h>
#include <turbo/program.hpp>

#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

using namespace turbo;

namespace {

struct Q8Matrix {
  uint64_t rows, cols;
  std::vector<uint8_t> file;   // as in GGUF
  std::vector<float> decoded;
  Q8Matrix(uint64_t seed, uint64_t rows, uint64_t cols) : rows(rows), cols(cols) {
    for (uint64_t block = 0; block < rows * cols / 32; ++block) {
      const uint16_t half = turbo_f32_to_f16(0.01f + 0.001f * static_cast<float>(block % 7));
      file.push_back(static_cast<uint8_t>(half & 0xff));
      file.push_back(static_cast<uint8_t>(half >> 8));
      for (uint64_t i = 0; i < 32; ++i) {
        const auto code = static_cast<int8_t>(turbo_uniform(seed, block * 32 + i) * 254 - 127);
        file.push_back(static_cast<uint8_t>(code));
        decoded.push_back(turbo_f16_to_f32(half) * static_cast<float>(code));
      }
    }
  }
};

class TemplatesTest : public testing::Test {
 protected:
  fake::Host host;
  fake::Component format{open_template("weight_format"), "weight_format", "my_q8_0", TURBO_TIER_CPU, host};
  const turbo_weight_format* weights = format.interface<turbo_weight_format>(TURBO_WEIGHT_FORMAT_1);
};

}  // namespace

TEST_F(TemplatesTest, WeightFormatMultipliesInTheFixedOrder) {
  constexpr uint64_t kRows = 5, kCols = 96;
  const Q8Matrix source(1, kRows, kCols);
  uint64_t bytes = 0, alignment = 0;
  uint32_t tile = 0;
  Error error;
  ASSERT_EQ(weights->packed_size(format.self(), 8, kRows, kCols, &bytes, &alignment, &tile, &error), TURBO_OK);
  std::vector<float> storage(bytes / 4 + 1);
  ASSERT_EQ(weights->repack(format.self(), 8, kRows, kCols, source.file.data(), source.file.size(), storage.data(), 3, 5, &error), TURBO_OK);
  ASSERT_EQ(weights->repack(format.self(), 8, kRows, kCols, source.file.data(), source.file.size(), storage.data(), 0, 3, &error), TURBO_OK);
  const turbo_matrix matrix = {sizeof(turbo_matrix), 8, kRows, kCols, storage.data(), bytes};
  std::vector<float> decoded(kRows * kCols);
  weights->decode_rows(format.self(), &matrix, 0, kRows, decoded.data());
  EXPECT_EQ(decoded, source.decoded);

  const uint64_t stride = weights->activation_bytes(format.self(), 8, kCols);
  EXPECT_EQ(stride % 64, 0u);
  std::vector<float> x(2 * kCols), prepared(2 * stride / 4), out(2 * kRows, -1);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(turbo_uniform(2, i) - 0.5);
  for (uint64_t r = 0; r < 2; ++r) weights->prepare_row(format.self(), 8, &x[r * kCols], kCols, &prepared[r * stride / 4]);
  for (const auto& [begin, end] : {std::pair<uint64_t, uint64_t>{0, 2}, {2, 5}}) {
    const turbo_matmul args = {sizeof args, 2, &matrix, prepared.data(), stride, out.data(), kRows, begin, end};
    weights->matmul(format.self(), &args);
  }
  for (uint64_t r = 0; r < 2; ++r)
    for (uint64_t o = 0; o < kRows; ++o) EXPECT_EQ(out[r * kRows + o], turbo_dot_f32(&x[r * kCols], &source.decoded[o * kCols], kCols));
}

TEST_F(TemplatesTest, WeightFormatRefusesWhatItCannotHold) {
  uint64_t bytes, alignment;
  uint32_t tile;
  Error error;
  const auto size = [&](uint32_t type, uint64_t rows, uint64_t cols) { return weights->packed_size(format.self(), type, rows, cols, &bytes, &alignment, &tile, &error); };
  EXPECT_EQ(size(2, 4, 32), TURBO_UNSUPPORTED);
  EXPECT_EQ(size(8, 4, 33), TURBO_CORRUPT_INPUT);
  EXPECT_EQ(size(8, 0, 32), TURBO_CORRUPT_INPUT);
  EXPECT_EQ(size(8, uint64_t{1} << 62, 1 << 20), TURBO_CORRUPT_INPUT);
  EXPECT_EQ(size(8, 1, ~uint64_t{31}), TURBO_CORRUPT_INPUT);
  const Q8Matrix source(1, 2, 32);
  std::vector<float> storage(100);
  EXPECT_EQ(weights->repack(format.self(), 8, 2, 32, source.file.data(), source.file.size() - 1, storage.data(), 0, 2, &error), TURBO_CORRUPT_INPUT);
  EXPECT_STREQ(error.message, "q8_0 matrix: the file ends before its last row");
}

TEST_F(TemplatesTest, ArchPackRunsAProgramAndTheSamplerReadsIt) {
  constexpr uint64_t kWidth = 32, kVocab = 11;
  host.formats[8] = {weights, format.self()};
  fake::Component component(open_template("arch_pack"), "arch_pack", "my_cpu", TURBO_TIER_CPU, host);
  const auto* pack = component.interface<turbo_arch_pack>(TURBO_ARCH_PACK_DRAFT);
  void* self = component.self();
  EXPECT_EQ(pack->sync, nullptr);
  Error error;
  ASSERT_EQ(pack->self_test(self, &error), TURBO_OK) << error.message;
  const Q8Matrix embedding(1, kVocab, kWidth), output(2, kVocab, kWidth), gain(3, 1, kWidth);
  const auto load = [&](const char* name, const Q8Matrix& m, uint32_t type = 8) {
    const turbo_weight_source source = {sizeof source, type, name, m.rows, m.cols, m.file.data(), m.file.size(), {0, 1, 0}};
    turbo_weight* weight = nullptr;
    EXPECT_EQ(pack->weight_load(self, &source, &weight, &error), type == 8 ? TURBO_OK : TURBO_UNSUPPORTED) << error.message;
    return weight;
  };
  EXPECT_EQ(load("odd", gain, 2), nullptr);
  EXPECT_STREQ(error.message, "odd: weight type 2: no format serves it");
  turbo_weight *w_embedding = load("embedding", embedding), *w_output = load("output", output), *w_gain = load("norm", gain);
  EXPECT_EQ(pack->weight_in_place(self, w_output), 0u);
  EXPECT_GE(pack->weight_bytes(self, w_output), kVocab * (kWidth + 4));

  ProgramBuilder builder("step", 4, 2, nullptr);
  const uint32_t x = builder.buffer("x", kWidth), normed = builder.buffer("normed", kWidth), last = builder.buffer("last", kWidth, TURBO_ROWS_LOGIT),
                 logits = builder.buffer("logits", kVocab, TURBO_ROWS_LOGIT, true);
  builder.embed(w_embedding, x);
  builder.add(x, x, x);
  builder.rms_norm(w_gain, x, normed, 1e-6f);
  builder.gather_rows(normed, last);
  builder.matmul(w_output, last, logits);
  turbo_program program = builder.program();
  turbo_plan* plan = nullptr;
  ASSERT_EQ(pack->compile(self, &program, &plan, &error), TURBO_OK) << error.message;
  const turbo_step_caps caps = {sizeof caps, 4, 1, 2, 1, 1};
  turbo_step_table* table = nullptr;
  ASSERT_EQ(pack->table_create(self, &caps, &table, &error), TURBO_OK);
  table->n_rows = 3;
  table->n_logit_rows = 2;
  const int32_t tokens[] = {4, 10, 0};
  std::memcpy(table->token, tokens, sizeof tokens);
  table->logit_row[0] = 2;
  table->logit_row[1] = 1;
  ASSERT_EQ(pack->run(self, plan, table, &error), TURBO_OK) << error.message;
  turbo_view view{};
  view.struct_size = sizeof view;
  ASSERT_EQ(pack->plan_buffer(self, plan, logits, &view, &error), TURBO_OK);
  EXPECT_EQ(view.shape[1], kVocab);
  const auto* got = static_cast<const float*>(view.data);
  for (int r = 0; r < 2; ++r) {
    const float* row = &embedding.decoded[static_cast<size_t>(tokens[table->logit_row[r]]) * kWidth];
    double square = 0;
    for (uint64_t e = 0; e < kWidth; ++e) square += 4.0 * static_cast<double>(row[e]) * static_cast<double>(row[e]);
    for (uint64_t o = 0; o < kVocab; ++o) {
      double expected = 0;
      for (uint64_t e = 0; e < kWidth; ++e)
        expected += 2.0 * static_cast<double>(row[e]) / std::sqrt(square / kWidth + 1e-6) * static_cast<double>(gain.decoded[e]) * static_cast<double>(output.decoded[o * kWidth + e]);
      EXPECT_NEAR(got[static_cast<uint64_t>(r) * kVocab + o], expected, 1e-4);
    }
  }

  fake::Component sampler(open_template("sampler"), "sampler", "greedy", TURBO_TIER_CPU, host);
  turbo_sampling_params params{};
  params.struct_size = sizeof params;
  params.n_requests = 1;
  const uint32_t requests[] = {0, 0};
  const uint64_t positions[] = {0, 1};
  int32_t ids[2];
  turbo_status status[2];
  turbo_sample args{};
  args.struct_size = sizeof args;
  args.n_rows = 2;
  args.vocab = kVocab;
  args.logits = got;
  args.logit_stride = kVocab;
  args.params = &params;
  args.row_request = requests;
  args.row_position = positions;
  args.ids = ids;
  args.row_status = status;
  ASSERT_EQ(sampler.interface<turbo_sampler>(TURBO_SAMPLER_1)->sample(sampler.self(), &args, &error), TURBO_OK);
  for (int r = 0; r < 2; ++r) EXPECT_EQ(ids[r], std::max_element(got + r * 11, got + (r + 1) * 11) - (got + r * 11));

  table->token[0] = 11;  // outside the vocabulary
  EXPECT_EQ(pack->run(self, plan, table, &error), TURBO_INVALID_ARGUMENT);
  table->n_rows = 5;
  EXPECT_EQ(pack->run(self, plan, table, &error), TURBO_INVALID_ARGUMENT);
  program.n_ops = 1;
  turbo_op attend{};
  attend.struct_size = sizeof attend;
  attend.kind = TURBO_OP_ATTEND;
  program.ops = &attend;
  turbo_plan* none = nullptr;
  EXPECT_EQ(pack->compile(self, &program, &none, &error), TURBO_UNSUPPORTED);
  turbo_kv_pool* pool = nullptr;
  const turbo_kv_pool_desc desc = {sizeof desc, 1, 1, 8, 8, 1, 1};
  EXPECT_EQ(pack->kv_create(self, &desc, &pool, &error), TURBO_UNSUPPORTED);
  pack->table_free(self, table);
  pack->plan_free(self, plan);
  for (turbo_weight* w : {w_embedding, w_output, w_gain}) pack->weight_free(self, w);
}

TEST(Manifests, SayWhatTheLibrariesSay) {
  for (const char* kind : {"drafter", "kv_codec", "sampler", "weight_format", "arch_pack"}) {
    std::ifstream in(std::string(TURBO_SOURCE) + "/sdk/templates/" + kind + "/plugin.yaml");
    std::stringstream text;
    text << in.rdbuf();
    const turbo_plugin* plugin = open_template(kind)(TURBO_ABI_MAJOR, TURBO_ABI_MINOR);
    ASSERT_NE(plugin, nullptr);
    EXPECT_NE(text.str().find("\nid: " + std::string(plugin->id) + "\n"), std::string::npos) << kind;
    EXPECT_NE(text.str().find("\nname: " + std::string(plugin->name) + "\n"), std::string::npos) << kind;
    EXPECT_NE(text.str().find("\nversion: " + std::string(plugin->version) + "\n"), std::string::npos) << kind;
    EXPECT_NE(text.str().find("kind: " + std::string(plugin->components[0].kind) + ", name: " + plugin->components[0].name + ","), std::string::npos) << kind;
  }
}
