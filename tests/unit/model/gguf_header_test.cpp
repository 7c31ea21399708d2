// GGUF header and metadata: every value type, and the malformed classes G1 to G8 of container headers.
#include <cstring>

#include "model/files/gguf_reader.h"
#include "model_test_util.h"

namespace turbo::model::testing {
namespace {

using enum Code;

GgufWriter small() {
  GgufWriter w;
  w.text("general.architecture", "qwen3").u32("a.count", 7).texts("a.names", {"x", "", "yz"});
  w.tensor("t", {32}, 0);
  return w;
}

TEST(GgufHeader, ReadsEveryValueType) {
  GgufWriter w;
  w.u8("u8", 250).i8("i8", -5).u16("u16", 65535).i16("i16", -300).u32("u32", 4000000000u).i32("i32", -7);
  w.f32("f32", 1.5f).boolean("yes", true).boolean("no", false).text("text", "h\xc3\xa9").u64("u64", 1ull << 63);
  w.i64("i64", -(1ll << 40)).f64("f64", 0.1);
  w.array<int32_t>("i32s", 5, {-1, 2}).array<float>("f32s", 6, {0.5f}).array<uint32_t>("u32s", 4, {9, 8, 7});
  w.array<uint8_t>("bools", 7, {1, 0})
      .array<int8_t>("i8s", 1, {-1})
      .array<uint64_t>("none", 10, {})
      .texts("texts", {"a", "", "bc"});
  const std::string bytes = w.build();
  auto file = ModelFile::open_memory("t.gguf", as_bytes(bytes));
  ASSERT_TRUE(file) << file.status().message();
  const Metadata& m = (*file)->metadata();
  EXPECT_EQ(m.get_unsigned("u8").value(), 250u);
  EXPECT_EQ(m.get_unsigned("u16").value(), 65535u);
  EXPECT_EQ(m.get_u32("u32").value(), 4000000000u);
  EXPECT_EQ(m.get_i32("i32").value(), -7);
  EXPECT_EQ(m.get_f32("f32").value(), 1.5f);
  EXPECT_TRUE(m.get_bool("yes").value());
  EXPECT_FALSE(m.get_bool("no").value());
  EXPECT_EQ(m.get_string("text").value(), "h\xc3\xa9");
  EXPECT_EQ(m.get_u64("u64").value(), 1ull << 63);
  EXPECT_EQ(m.get_f64("f64").value(), 0.1);
  EXPECT_EQ(m.get_i32s("i32s").value(), (std::vector<int32_t>{-1, 2}));
  EXPECT_EQ(m.get_f32s("f32s").value(), (std::vector<float>{0.5f}));
  EXPECT_EQ(m.get_u32s("u32s").value(), (std::vector<uint32_t>{9, 8, 7}));
  EXPECT_EQ(m.get_unsigneds("none").value().size(), 0u);
  EXPECT_EQ(m.get_strings("texts").value(), (std::vector<std::string>{"a", "", "bc"}));
  EXPECT_EQ((*m.find_strings("texts"))[2], "bc");
  ASSERT_EQ(m.size(), 20u);
  EXPECT_EQ(m.entries()[0].key, "u8");  // file order
  EXPECT_EQ(m.find("i64")->shown(), "-1099511627776");
  EXPECT_EQ(m.find("i8s")->shown(), "[1] -1");
  EXPECT_EQ(m.find("texts")->shown(), "[3] a, , bc");
  EXPECT_EQ(m.find("bools")->type_text(), "array of bool");
}

TEST(GgufHeader, GettersNameKeyExpectedAndFoundType) {
  GgufWriter w;
  w.f32("a.count", 2.0f).i32("neg", -1).texts("names", {"x"}).array<int32_t>("negs", 5, {1, -2});
  const std::string bytes = w.build();
  auto file = ModelFile::open_memory("t.gguf", as_bytes(bytes));
  ASSERT_TRUE(file);
  const Metadata& m = (*file)->metadata();
  expect_failure(m.get_u32("a.count").status(), corrupt_input, {"'a.count'", "expected u32", "found f32"});
  expect_failure(m.get_u32("absent").status(), not_found, {"'absent'", "missing"});
  expect_failure(m.optional_string("a.count").status(), corrupt_input, {"expected string but found f32"});
  expect_failure(m.get_unsigned("neg").status(), corrupt_input, {"-1"});
  expect_failure(m.get_unsigned("a.count").status(), corrupt_input, {"an integer", "f32"});
  expect_failure(m.get_i32s("names").status(), corrupt_input, {"array of i32", "array of string"});
  expect_failure(m.get_unsigneds("negs").status(), corrupt_input, {"element 1", "-2"});
  EXPECT_FALSE(m.optional_u32("absent").value().has_value());
}

TEST(GgufHeader, CutAtEveryByteIsAnError) {  // G1
  const std::string whole = small().build();
  ASSERT_TRUE(open_status(whole));
  // The last tensor is 128 bytes, a multiple of the alignment, so every cut loses data.
  for (size_t n = 0; n < whole.size(); ++n) {
    const std::string cut = whole.substr(0, n);  // own allocation, so that the sanitizer sees a read past the end
    const Status status = open_status(cut);
    ASSERT_FALSE(status) << n;
    EXPECT_EQ(status.code(), corrupt_input) << n << " " << status.message();
    EXPECT_FALSE(status.hint().empty()) << n;
  }
  expect_failure(open_status(""), corrupt_input, {"header", "empty"});
  expect_failure(open_status(whole.substr(0, 10)), corrupt_input, {"header", "expected 8 bytes at byte 8", "10 bytes"});
}

TEST(GgufHeader, EveryByteMutatedNeverCrashes) {
  const std::string whole = TinyModel().writer().build();
  const size_t header = TinyModel().writer().header().size();
  for (size_t n = 0; n < header; n += 3) {
    for (const uint8_t value : {0x00, 0x7f, 0x80, 0xff}) {
      std::string changed = whole;
      changed[n] = char(value);
      (void)ModelFile::open_memory("t.gguf", as_bytes(changed));
    }
  }
}

TEST(GgufHeader, MagicAndVersion) {  // G2
  GgufWriter w = small();
  w.magic = "GGUX";
  expect_failure(open_status(w.build()), unsupported, {"header", "GGUX"});
  for (uint32_t version : {0u, 1u, 4u, 99u, 0xFFFFFFFFu}) {
    w = small();
    w.version = version;
    expect_failure(open_status(w.build()), unsupported, {"version 2 or 3", std::to_string(version)});
  }
  w.version = 3u << 24;
  expect_failure(open_status(w.build()), unsupported, {"other byte order"});
  w.version = 2;
  EXPECT_TRUE(open_status(w.build()));
}

TEST(GgufHeader, CountsAreCheckedBeforeAllocation) {  // G3
  for (const int64_t count : {INT64_MAX, INT64_MIN, int64_t(-1), int64_t(1) << 60, int64_t(1) << 32, int64_t(100)}) {
    GgufWriter w = small();
    w.tensor_count = count;
    expect_failure(open_status(w.build()), corrupt_input, {"tensor count", std::to_string(count)});
    w = small();
    w.key_count = count;
    expect_failure(open_status(w.build()), corrupt_input, {"key count", std::to_string(count)});
  }
}

TEST(GgufHeader, LengthsAreChecked) {  // G4
  for (const uint64_t length :
       {uint64_t(UINT64_MAX), uint64_t(UINT64_MAX) - 7, uint64_t(1) << 63, uint64_t(1) << 33, uint64_t(4000)}) {
    GgufWriter w = small();
    w.pair("s", 8, GgufWriter::raw(length) + "abc");
    expect_failure(open_status(w.build()), corrupt_input, {"key 's'", "string of " + std::to_string(length)});
    GgufWriter keys;
    keys.key_count = 1;
    expect_failure(open_status(keys.build() + GgufWriter::raw(length) + "abcdefgh"), corrupt_input,
                   {"key 0 at byte 24", std::to_string(length)});
    GgufWriter names;
    names.tensor_count = 1;
    expect_failure(open_status(names.build() + GgufWriter::raw(length) + std::string(40, 'x')), corrupt_input,
                   {"tensor 0", std::to_string(length)});
  }
}

TEST(GgufHeader, ArraysAreChecked) {  // G5
  const auto array = [](uint32_t element, uint64_t count, const std::string& data = std::string(64, '\0')) {
    GgufWriter w;
    w.pair("a", 9, GgufWriter::raw(element) + GgufWriter::raw(count) + data);
    return open_status(w.build());
  };
  expect_failure(array(9, 1), corrupt_input, {"key 'a'", "array of arrays"});
  expect_failure(array(13, 1), corrupt_input, {"element type", "13"});
  expect_failure(array(0xFFFFFFFF, 1), corrupt_input, {"element type"});
  for (const uint64_t count : {uint64_t(UINT64_MAX), uint64_t(1) << 61, uint64_t(1) << 62, uint64_t(17)}) {
    expect_failure(array(4, count), corrupt_input, {"array of " + std::to_string(count)});
    expect_failure(array(8, count), corrupt_input, {"array of " + std::to_string(count)});
  }
  expect_failure(array(8, 2, GgufWriter::raw(UINT64_MAX) + GgufWriter::raw(UINT64_MAX)), corrupt_input, {"element 0"});
  expect_failure(array(7, 2, std::string("\1\2", 2)), corrupt_input, {"bools of 0 or 1"});
  GgufWriter w;
  w.pair("a", 13, "12345678");
  expect_failure(open_status(w.build()), corrupt_input, {"key 'a'", "value type from 0 to 12", "13"});
  w = {};
  w.pair("a", 7, "\2  ");
  expect_failure(open_status(w.build()), corrupt_input, {"bool of 0 or 1"});
}

TEST(GgufHeader, KeysAndNames) {  // G6
  GgufWriter w = small();
  w.u32("", 1);
  expect_failure(open_status(w.build()), corrupt_input, {"key 3 at byte", "empty"});
  w = small();
  w.u32("a.count", 8);
  expect_failure(open_status(w.build()), corrupt_input, {"'a.count'", "twice, at byte 69 and at byte 150"});
  w = small();
  w.u32(std::string(65536, 'k'), 1);
  expect_failure(open_status(w.build()), resource_exhausted, {"65535", "65536"});
  w = small();
  w.u32(std::string(65535, 'k'), 1);
  EXPECT_TRUE(open_status(w.build()));
  for (const char* bad : {"\xff", "\xc0\x80", "\xed\xa0\x80", "a\xe2\x82", "\xf4\x90\x80\x80"}) {
    w = small();
    w.u32(bad, 1);
    expect_failure(open_status(w.build()), corrupt_input, {"not UTF-8", "\\x"});
    w = small();
    w.tensor(bad, {32}, 0);
    expect_failure(open_status(w.build()), corrupt_input, {"tensor 1 at byte", "not UTF-8"});
  }
  w = small();
  w.tensor("t", {32}, 0);
  expect_failure(open_status(w.build()), corrupt_input, {"tensor 't'", "twice, at byte"});
  w = small();
  w.tensor("", {32}, 0);
  expect_failure(open_status(w.build()), corrupt_input, {"name is empty"});
  w = small();
  w.tensor(std::string(64, 'n'), {32}, 0);
  expect_failure(open_status(w.build()), resource_exhausted, {"at most 63", "64"});
}

TEST(GgufHeader, AlignmentTypeAndRange) {  // G7, G8
  const auto with = [](auto&& edit, uint64_t layout) {
    GgufWriter w;
    edit(w);
    w.alignment = layout;
    w.tensor("t", {32}, 0).tensor("u", {32}, 0);
    return open_status(w.build());
  };
  constexpr const char* key = "general.alignment";
  expect_failure(with([](auto& w) { w.i32(key, 32); }, 32), corrupt_input,
                 {"general.alignment", "expected u32", "i32"});
  expect_failure(with([](auto& w) { w.text(key, "32"); }, 32), corrupt_input, {"expected u32", "string"});
  expect_failure(with([](auto& w) { w.u64(key, 32); }, 32), corrupt_input, {"expected u32", "u64"});
  for (const uint32_t bad : {0u, 3u, 48u, (1u << 20) + 1, 1u << 21, 1u << 31, 0xFFFFFFFFu}) {
    expect_failure(with([&](auto& w) { w.u32(key, bad); }, 32), corrupt_input,
                   {"power of two from 1 to 1048576", std::to_string(bad)});
  }
  for (const uint32_t good : {1u, 8u, 64u, 4096u, 1u << 20}) {
    EXPECT_TRUE(with([&](auto& w) { w.u32(key, good); }, good)) << good;
  }
}

TEST(GgufHeader, RotatedWeightsAreRefused) {
  GgufWriter w = small();
  w.u32("prism.hadamard.version", 1);
  expect_failure(open_status(w.build()), unsupported, {"prism.hadamard.version", "rotated basis"});
}

}  // namespace
}  // namespace turbo::model::testing
