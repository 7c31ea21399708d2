// GGUF tensor table: dimensions, types, offsets (classes G9 to G13), and the layouts that share a type number.
#include <cmath>
#include <cstring>

#include "model/files/gguf_reader.h"
#include "model/files/weight_check.h"
#include "model_test_util.h"

namespace turbo::model::testing {
namespace {

using enum Code;

Status one(std::vector<uint64_t> dims, uint32_t type = 0, std::optional<uint64_t> offset = {}) {
  GgufWriter w;
  w.tensor("t", std::move(dims), type, std::string(4096, '\0'), offset);
  return open_status(w.build());
}

TEST(GgufTensors, GeometryTable) {
  struct Row {
    uint32_t number;
    const char* name;
    uint32_t weights, bytes;
  };
  for (const Row& row : {Row{0, "f32", 1, 4},
                         {1, "f16", 1, 2},
                         {30, "bf16", 1, 2},
                         {2, "q4_0", 32, 18},
                         {3, "q4_1", 32, 20},
                         {6, "q5_0", 32, 22},
                         {7, "q5_1", 32, 24},
                         {8, "q8_0", 32, 34},
                         {34, "tq1_0", 256, 54},
                         {35, "tq2_0", 256, 66},
                         {41, "q1_0", 128, 18},
                         {42, "q2_0_g64", 64, 18},
                         {142, "pq2_0", 128, 34},
                         {143, "ptq1_0", 128, 28}}) {
    const TypeInfo* info = find_type(row.number);
    ASSERT_TRUE(info) << row.number;
    EXPECT_EQ(info->name, row.name);
    EXPECT_EQ(info->block_weights, row.weights);
    EXPECT_EQ(info->block_bytes, row.bytes);
    EXPECT_EQ(find_type(std::string_view(row.name)), info);
  }
  EXPECT_EQ(find_type(44u), nullptr);
  EXPECT_EQ(find_type("q9_9"), nullptr);
  EXPECT_EQ(bytes_of(*find_type(41u), 127), std::nullopt);
  EXPECT_EQ(bytes_of(*find_type(28u), 1ull << 62), std::nullopt);
}

TEST(GgufTensors, ReadsTheTable) {
  GgufWriter w;
  std::string data(36, 'x');
  w.tensor("a", {5}, 0).tensor("b.weight", {128, 2}, 41, data).tensor("c", {2, 3, 4, 5}, 1);
  const std::string bytes = w.build();
  auto file = ModelFile::open_memory("t.gguf", as_bytes(bytes));
  ASSERT_TRUE(file) << file.status().message();
  ASSERT_EQ((*file)->tensors().size(), 3u);
  const Tensor* b = (*file)->find("b.weight");
  ASSERT_TRUE(b);
  EXPECT_EQ(b->dims, (std::vector<uint64_t>{128, 2}));
  EXPECT_EQ(b->type, type::q1_0);
  EXPECT_EQ(b->bytes, 36u);
  EXPECT_EQ(b->row_bytes(), 18u);
  EXPECT_EQ(b->n_elements(), 256u);
  EXPECT_EQ(std::memcmp(b->data, data.data(), 36), 0);
  EXPECT_EQ((*file)->find("c")->row_bytes(), 4u);
  EXPECT_EQ((*file)->find("d"), nullptr);
}

TEST(GgufTensors, Dimensions) {  // G9
  EXPECT_TRUE(one({32}));
  expect_failure(one({}), corrupt_input, {"tensor 't'", "1 to 4 dimensions", "found 0"});
  expect_failure(one({1, 1, 1, 1, 1}), corrupt_input, {"1 to 4 dimensions", "found 5"});
  expect_failure(one({0}), corrupt_input, {"dimension 0", "over 0 but found 0"});
  expect_failure(one({32, 0}), corrupt_input, {"dimension 1", "found 0"});
  expect_failure(one({uint64_t(-4)}), corrupt_input, {"found -4"});
  expect_failure(one({1ull << 32, 1ull << 32}), corrupt_input, {"63 bits"});  // wraps to zero
  expect_failure(one({1ull << 32, 1ull << 32, 0}), corrupt_input, {"63 bits"});
  expect_failure(one({1ull << 62, 2}), corrupt_input, {"63 bits"});
  expect_failure(one({(1ull << 62) / 3, 3, 5}), corrupt_input, {"63 bits"});
  expect_failure(one({1ull << 62}), corrupt_input, {"64 bits"});  // bytes do not fit
  expect_failure(one({1ull << 62}, 28), corrupt_input, {"64 bits"});
  expect_failure(one({1ull << 62}, 8), corrupt_input, {"data to end at byte"});  // 4.9e18 bytes
}

TEST(GgufTensors, PaddingDoesNotWrap) {  // G10
  // 2^63 - 32 elements of one byte each twice: the sum fits 64 bits only before padding.
  GgufWriter w;
  const uint64_t huge = uint64_t(INT64_MAX) - 31;
  w.tensor("a", {huge}, 24, "x", 0).tensor("b", {huge}, 24, "x", huge);
  expect_failure(open_status(w.build()), corrupt_input, {"tensor 'a'", "data to end"});
  w = {};
  w.tensor("a", {(1ull << 62) - 1}, 0, "x", 0);  // 2^64 - 4 bytes, padded to 2^64
  expect_failure(open_status(w.build()), corrupt_input, {"64 bits"});
}

TEST(GgufTensors, Types) {  // G11
  for (const uint32_t retired : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u}) {
    expect_failure(one({32}, retired), unsupported, {"tensor 't'", "type " + std::to_string(retired), "retired"});
  }
  for (const uint32_t unknown :
       {43u, 44u, 97u, 141u, 144u, 0xFFFFFFFFu, uint32_t(type::u8), uint32_t(type::q2_0_g128)}) {
    expect_failure(one({32}, unknown), unsupported, {"tensor 't'", "known type"});
  }
  expect_failure(one({127}, 41), corrupt_input, {"rows of q1_0", "multiple of 128", "127"});  // M11
  expect_failure(one({64, 2}, 41), corrupt_input, {"multiple of 128", "64"});                 // blocks do not span rows
  for (const TypeInfo& info : known_types()) {
    if (info.number < 0x10000 && info.number != 42) {
      GgufWriter w;
      w.tensor("t", {256, 3}, info.number);
      EXPECT_TRUE(open_status(w.build())) << info.name;
    }
  }
}

TEST(GgufTensors, Offsets) {  // G12
  const auto two = [](uint64_t first, uint64_t second) {
    GgufWriter w;
    w.tensor("a", {8}, 0, {}, first).tensor("b", {8}, 0, {}, second);
    return open_status(w.build());
  };
  EXPECT_TRUE(two(0, 32));
  expect_failure(two(32, 0), corrupt_input, {"tensor 'a'", "expected offset 0", "found 32"});
  expect_failure(two(0, 0), corrupt_input, {"tensor 'b'", "expected offset 32", "found 0"});
  for (const uint64_t bad : {1ull, 16ull, 33ull, 64ull, 1ull << 40, ~0ull, ~0ull - 31}) {
    expect_failure(two(0, bad), corrupt_input, {"tensor 'b'", "expected offset 32", std::to_string(bad)});
  }
  GgufWriter w;
  w.tensor("a", {64}, 0, std::string(128, 'x'));  // 256 bytes declared
  expect_failure(open_status(w.build()), corrupt_input, {"end at byte 256", "128 bytes"});
}

TEST(GgufTensors, SixtyFourBitsAllTheWay) {  // G13: a sparse file over 4 GiB
  TempFolder folder;
  GgufWriter w;
  const uint64_t n = (1ull << 32) + 64;
  w.tensor("big", {n, 1}, 24, "x").tensor("last", {32}, 24, std::string(32, 'z'), n);
  const std::string header = w.header();
  const auto path = folder.write("big.gguf", header);
  const uint64_t data = (header.size() + 31) / 32 * 32;
  std::filesystem::resize_file(path, data + n);
  std::ofstream(path, std::ios::binary | std::ios::app) << std::string(32, 'z');
  auto file = ModelFile::open(path);
  ASSERT_TRUE(file) << file.status().message();
  EXPECT_EQ((*file)->find("big")->n_elements(), n);
  EXPECT_EQ((*file)->find("big")->row_bytes(), n);
  EXPECT_EQ((*file)->find("last")->data[31], std::byte{'z'});
}

// --- numbers 40 and 42 ---

std::string ternary_blocks(size_t n, bool scale_last, uint8_t code_byte = 0x24) {
  // 0x24 = codes 0, 1, 2, 0: ternary. As a half, two such bytes are 0x2424, a plausible scale; the scale 0x3C00 read as
  // codes is 0, 0, 0, 0, 0, 3, 3, 0: not ternary.
  const std::string codes(32, char(code_byte)), scale("\x00\x3c", 2);
  std::string out;
  for (size_t i = 0; i < n; ++i) out += scale_last ? codes + scale : scale + codes;
  return out;
}

Result<std::unique_ptr<ModelFile>> with_42(const std::string& data, std::vector<uint64_t> dims,
                                           const char* mark = nullptr, bool tail = true) {
  static std::string bytes;
  GgufWriter w;
  if (mark) w.text("general.quantization_version", mark);
  w.tensor("w", std::move(dims), 42, data);
  if (tail) w.tensor("output_norm.weight", {32}, 0);
  bytes = w.build();
  return ModelFile::open_memory("t.gguf", as_bytes(bytes));
}

TEST(GgufType42, TellsTheGroupSizesApartByOffsets) {
  auto g64 = with_42(std::string(128 * 18, '\0'), {128, 64});
  ASSERT_TRUE(g64) << g64.status().message();
  EXPECT_EQ((*g64)->find("w")->type, type::q2_0_g64);
  EXPECT_EQ(type_name((*g64)->find("w")->type), "q2_0_g64");

  auto g128 = with_42(ternary_blocks(64, false), {128, 64});
  ASSERT_TRUE(g128) << g128.status().message();
  EXPECT_EQ((*g128)->find("w")->type, type::q2_0_g128);
  EXPECT_EQ(type_name(type::q2_0_g128), "q2_0_g128");
  EXPECT_EQ((*g128)->find("w")->bytes, 64u * 34);
}

TEST(GgufType42, LastTensorIsDecidedByTheEndOfTheFile) {
  auto g128 = with_42(ternary_blocks(64, false), {128, 64}, nullptr, false);
  ASSERT_TRUE(g128) << g128.status().message();
  EXPECT_EQ((*g128)->find("w")->type, type::q2_0_g128);
  auto g64 = with_42(std::string(128 * 18, '\0'), {128, 64}, nullptr, false);
  ASSERT_TRUE(g64) << g64.status().message();
  EXPECT_EQ((*g64)->find("w")->type, type::q2_0_g64);
}

TEST(GgufType42, ScaleLast) {
  auto marked = with_42(ternary_blocks(64, true), {128, 64}, "TQ2_0_G128");
  ASSERT_TRUE(marked) << marked.status().message();
  EXPECT_EQ(type_name((*marked)->find("w")->type), "q2_0_g128_scale_last");
  auto sampled = with_42(ternary_blocks(64, true), {128, 64});  // no mark: the blocks decide
  ASSERT_TRUE(sampled) << sampled.status().message();
  EXPECT_EQ((*sampled)->find("w")->type, type::q2_0_g128_scale_last);
  expect_failure(with_42(ternary_blocks(64, false), {128, 64}, "TQ2_0_G128").status(), unsupported,
                 {"scale comes last"});
  expect_failure(with_42(std::string(128 * 18, '\0'), {128, 64}, "TQ2_0_G128").status(), unsupported,
                 {"34 bytes", "18 bytes"});

  GgufWriter w;
  w.text("oxibonsai.quant_format", "any").tensor("w", {128, 64}, 42, ternary_blocks(64, true)).tensor("z", {32}, 0);
  const std::string bytes = w.build();
  auto newer = ModelFile::open_memory("t.gguf", as_bytes(bytes));
  ASSERT_TRUE(newer) << newer.status().message();
  EXPECT_EQ((*newer)->find("w")->type, type::q2_0_g128_scale_last);
}

TEST(GgufType42, NothingIsGuessed) {
  // Code 3 under both readings: neither is a ternary file.
  expect_failure(with_42(std::string(64 * 34, '\xff'), {128, 64}).status(), unsupported, {"neither"});
  // One block of 128 weights: 34 and 36 bytes both pad to 64, and the section's end fits both.
  expect_failure(with_42(std::string(36, '\0'), {128}, nullptr, true).status(), unsupported,
                 {"42", "more than one fits"});
  // A size that no layout has.
  expect_failure(with_42(std::string(4000, '\0'), {128, 64}).status(), corrupt_input,
                 {"output_norm.weight", "expected offset 2304"});
  // The early forks' 1-bit layout under this number.
  expect_failure(with_42(std::string(256 * 6, '\0'), {128, 64}).status(), unsupported, {"42", "obsolete 1-bit layout"});
  expect_failure(with_42(std::string(18, '\0'), {96}).status(), unsupported, {"obsolete"});  // rows only of 32
}

TEST(GgufType40, Nvfp4AndTheObsoleteLayout) {
  GgufWriter w;
  w.tensor("w", {128, 64}, 40, std::string(128 * 36, '\0')).tensor("z", {32}, 0);
  const std::string good = w.build();
  auto file = ModelFile::open_memory("t.gguf", as_bytes(good));
  ASSERT_TRUE(file) << file.status().message();
  EXPECT_EQ(type_name((*file)->find("w")->type), "nvfp4");
  w = {};
  w.tensor("w", {128, 64}, 40, std::string(256 * 6, '\0')).tensor("z", {32}, 0);
  expect_failure(open_status(w.build()), unsupported, {"40", "obsolete 1-bit layout"});
}

TEST(CheckWeights, FindsInfinityAndNan) {  // M8
  const auto check = [](uint32_t type, std::vector<uint64_t> dims, const std::string& data) {
    GgufWriter w;
    w.tensor("w", std::move(dims), type, data);
    const std::string bytes = w.build();
    auto file = ModelFile::open_memory("t.gguf", as_bytes(bytes));
    return file ? check_weights(**file) : file.status();
  };
  EXPECT_TRUE(check(41, {128, 2}, std::string(36, '\0')));  // all-zero scales are fine
  std::string bad(36, '\0');
  bad[19] = '\x7c';  // infinity in the second block
  expect_failure(check(41, {128, 2}, bad), corrupt_input, {"tensor 'w'", "element 128", "scale"});
  EXPECT_TRUE(check(0, {2}, GgufWriter::raw(1e-42f) + GgufWriter::raw(3e38f)));  // denormal and huge are numbers
  expect_failure(check(0, {2}, GgufWriter::raw(1.0f) + GgufWriter::raw(NAN)), corrupt_input, {"element 1", "weight"});
  expect_failure(check(30, {2}, std::string("\x00\x00\x80\xff", 4)), corrupt_input, {"element 1"});
  expect_failure(check(1, {1}, std::string("\x00\xfe", 2)), corrupt_input, {"element 0"});
  expect_failure(check(35, {256}, std::string(65, '\0') + '\x7c'), corrupt_input, {"element 0"});
}

}  // namespace
}  // namespace turbo::model::testing
