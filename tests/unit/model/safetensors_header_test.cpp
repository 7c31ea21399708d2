// The safetensors header: what is read, and the malformed classes S1 to S6.
#include <cstring>

#include "model_test_util.h"

namespace turbo::model::testing {
namespace {

using enum Code;
using namespace std::string_literals;

std::string file_with(const std::string& header, const std::string& data = {}) {
  return GgufWriter::raw(uint64_t(header.size())) + header + data;
}
Status status_of(const std::string& header, const std::string& data = {}) {
  return open_status(file_with(header, data), "t.st");
}

constexpr const char* kGood =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]},)"
    R"("a":{"dtype":"I64","shape":[1],"data_offsets":[12,20]}}  )";

void refused(const std::string& header, std::initializer_list<std::string_view> parts, size_t data = 0,
             Code code = corrupt_input) {
  expect_failure(status_of(header, std::string(data, '\0')), code, parts, "t.st");
}

TEST(SafetensorsHeader, ReadsTensorsInnermostFirst) {
  const std::string bytes = file_with(kGood, std::string(12, 'b') + std::string(8, 'a'));
  auto file = ModelFile::open_memory("t.st", as_bytes(bytes));
  ASSERT_TRUE(file) << file.status().message();
  EXPECT_EQ((*file)->format(), Format::safetensors);
  const Tensor* b = (*file)->find("b");
  ASSERT_TRUE(b);
  EXPECT_EQ(b->dims, (std::vector<uint64_t>{3, 2}));
  EXPECT_EQ(b->type, type::f16);
  EXPECT_EQ(b->bytes, 12u);
  EXPECT_EQ(b->data[11], std::byte{'b'});
  EXPECT_EQ((*file)->find("a")->type, type::i64);
  EXPECT_EQ((*file)->metadata().get_string("format").value(), "pt");
}

TEST(SafetensorsHeader, Dtypes) {
  struct Row {
    const char* dtype;
    uint32_t type;
    unsigned bytes;
  };
  for (const Row& row : {Row{"F32", 0, 4},
                         {"F16", 1, 2},
                         {"BF16", 30, 2},
                         {"F64", 28, 8},
                         {"I8", 24, 1},
                         {"I16", 25, 2},
                         {"I32", 26, 4},
                         {"I64", 27, 8},
                         {"U8", type::u8, 1},
                         {"U32", type::u32, 4},
                         {"BOOL", type::boolean, 1},
                         {"F8_E4M3", type::f8_e4m3, 1}}) {
    const std::string bytes = file_with(
        fmt::format(R"({{"t":{{"dtype":"{}","shape":[3],"data_offsets":[0,{}]}}}})", row.dtype, 3 * row.bytes),
        std::string(3 * row.bytes, 'x'));
    auto file = ModelFile::open_memory("t.st", as_bytes(bytes));
    ASSERT_TRUE(file) << row.dtype << file.status().message();
    EXPECT_EQ((*file)->find("t")->type, row.type) << row.dtype;
  }
  refused(R"({"t":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", {"tensor 't'", "known dtype", "'F4'"}, 2,
          unsupported);
  refused(R"({"t":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}})", {"known dtype", "'f32'"}, 4, unsupported);
  EXPECT_TRUE(status_of(R"({"t":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", "1234"));  // a scalar
}

TEST(SafetensorsHeader, CutAtEveryByteIsAnError) {  // S1
  const std::string whole = file_with(kGood, std::string(20, 'x'));
  ASSERT_TRUE(open_status(whole, "t.st"));
  for (size_t n = 9; n < whole.size(); ++n) {
    const std::string cut = whole.substr(0, n);
    const Status status = open_status(cut, "t.st");
    ASSERT_FALSE(status) << n;
    EXPECT_EQ(status.code(), corrupt_input) << n << status.message();
  }
  for (size_t n = 0; n < 9; ++n) EXPECT_FALSE(open_status(whole.substr(0, n), "t.st")) << n;
}

TEST(SafetensorsHeader, EveryByteMutatedNeverCrashes) {
  const std::string whole = file_with(kGood, std::string(20, 'x'));
  for (size_t n = 0; n < whole.size(); ++n) {
    for (const char value : {'\0', '"', '{', '}', '[', ',', '9', '-', '\xff'}) {
      std::string changed = whole;
      changed[n] = value;
      (void)ModelFile::open_memory("t.st", as_bytes(changed));
    }
  }
}

TEST(SafetensorsHeader, HeaderLength) {  // S1; a folder names the file, so the length is not what detects the format
  TempFolder folder;
  folder.write("config.json", "{}");
  for (const uint64_t length :
       {uint64_t(0), uint64_t(1), uint64_t(500), uint64_t(100'000'001), ~uint64_t(0), ~uint64_t(0) - 7}) {
    folder.write("model.safetensors", GgufWriter::raw(length) + R"({"t":{}})");
    expect_failure(ModelFile::open(folder.path()).status(), corrupt_input, {"header length", std::to_string(length)},
                   "model.safetensors");
  }
  folder.write("model.safetensors", "1234567");
  expect_failure(ModelFile::open(folder.path()).status(), corrupt_input, {"header length", "7"}, "model.safetensors");
}

TEST(SafetensorsHeader, Json) {  // S2
  TempFolder folder;
  folder.write("config.json", "{}");
  const auto in_folder = [&](const std::string& header, std::initializer_list<std::string_view> parts) {
    folder.write("model.safetensors", file_with(header));
    expect_failure(ModelFile::open(folder.path()).status(), corrupt_input, parts, "model.safetensors");
  };
  EXPECT_TRUE(status_of("{}"));
  in_folder(" {}", {"header", "byte 0"});
  in_folder("\xef\xbb\xbf{}", {"byte 0"});
  in_folder("[]", {"byte 0"});
  in_folder("{\"\xff\":1}", {"UTF-8"});
  in_folder("{}x", {"byte 2"});
  in_folder("{}{}", {"byte 2"});
  in_folder("{}\0garbage"s, {"byte 2", "NUL"});
  in_folder("{\"a\"", {"header: invalid at byte"});
  in_folder("{'a':1}", {"byte 1"});
  refused(R"({"t":1})", {"'t'", "expected an object"});
  refused(R"({"t":null})", {"'t'", "null"});
  refused(R"({"t":[]})", {"'t'", "an array"});
  refused(R"({"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", {"empty"}, 4);
  refused(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"extra":1}})", {"unknown field 'extra'"}, 4);
  refused(R"({"t":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", {"'dtype' is there twice"}, 4);
  refused(R"({"t":{"dtype":"F32","shape":[1]}})", {"tensor 't'", "'data_offsets'"});
  refused(R"({"t":{}})", {"expected 'dtype'"});
  refused(R"({"t":{"dtype":{"a":1},"shape":[1],"data_offsets":[0,4]}})", {"expected a string"}, 4);
  refused(R"({"t":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", {"'shape'", "an array"}, 4);
  // Deep nesting stops at the second level, whatever its depth.
  refused("{\"t\":" + std::string(1'000'000, '[') + "", {"'t'", "expected an object"});
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  refused(deep, {"tensor 'a'", "unknown field"});
}

TEST(SafetensorsHeader, TooManyTensors) {  // S2
  std::string header = "{";
  for (int i = 0; i < 300'000; ++i)
    header += fmt::format(R"("{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}},)", i, i, i + 1);
  header.back() = '}';
  refused(header, {"at most 262144 tensors"}, 300'000, resource_exhausted);
  refused("{\"" + std::string(1025, 'n') + "\":{}}", {"1024 bytes in a tensor name"}, 0, resource_exhausted);
}

TEST(SafetensorsHeader, DuplicateNames) {  // S3
  refused(
      R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"t":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
      {"'t' is there twice"}, 2);
  refused(
      R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0074":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
      {"'t' is there twice"}, 2);
  refused(R"({"__metadata__":{},"__metadata__":{}})", {"'__metadata__' is there twice"});
}

std::string two(const char* first, const char* second) {
  return fmt::format(
      R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":{}}},"b":{{"dtype":"U8","shape":[4],"data_offsets":{}}}}})",
      first, second);
}

TEST(SafetensorsHeader, Offsets) {  // S4
  EXPECT_TRUE(status_of(two("[0,4]", "[4,8]"), "12345678"));
  EXPECT_TRUE(status_of(two("[4,8]", "[0,4]"), "12345678"));  // header order is free
  refused(two("[4,0]", "[4,8]"), {"tensor 'a'", "begins at byte 4, after its end at 0"}, 8);
  refused(two("[0,4]", "[-4,8]"), {"tensor 'b'", "-4"}, 8);
  refused(two("[0,4]", "[4.0,8]"), {"tensor 'b'", "4.0"}, 8);
  refused(two("[0,4]", "[4,1e1]"), {"tensor 'b'", "1e1"}, 8);
  refused(two("[0,4]", "[4,99999999999999999999]"), {"tensor 'b'", "99999999999999999999"}, 8);
  refused(two("[0,4]", "[2,6]"), {"tensor 'b'", "overlap"}, 6);
  refused(two("[0,4]", "[0,4]"), {"tensor 'b'", "overlap"}, 4);
  refused(two("[0,4]", "[5,9]"), {"tensor 'b'", "a gap"}, 9);
  refused(two("[1,5]", "[5,9]"), {"tensor 'a'", "a gap"}, 9);
  refused(two("[0,4]", "[4,8]"), {"data", "expected 8 bytes", "holds 9"}, 9);  // bytes of no tensor
  refused(two("[0,4]", "[4,8]"), {"tensor 'b'", "ends at byte 8", "holds 7"}, 7);
  refused(two("[0,4]", "[18446744073709551615,3]"), {"tensor 'b'", "after its end"}, 8);
  refused(two("[0,4]", "[4]"), {"tensor 'b'", "two 'data_offsets'"}, 8);
  refused(two("[0,4]", "[4,8,9]"), {"tensor 'b'", "at most 2 numbers"}, 8);
  refused(two("[0,4]", "\"4,8\""), {"tensor 'b'", "a string"}, 8);
  refused("{}", {"data", "expected 0 bytes"}, 3);
}

TEST(SafetensorsHeader, ShapeAgainstOffsets) {  // S5
  const auto with = [](const char* dtype, const char* shape, size_t bytes,
                       std::initializer_list<std::string_view> parts) {
    refused(fmt::format(R"({{"t":{{"dtype":"{}","shape":{},"data_offsets":[0,{}]}}}})", dtype, shape, bytes), parts,
            bytes);
  };
  with("F32", "[2,3]", 23, {"tensor 't'", "{3, 2} of f32 needs 24 bytes", "span 23"});
  with("F32", "[4294967296,4294967296]", 4, {"63 bits"});
  with("F32", "[9223372036854775807,2]", 4, {"63 bits"});
  with("F64", "[4611686018427387904]", 4, {"64 bits"});
  with("F32", "[0]", 0, {"over 0"});
  with("F32", "[-1]", 4, {"-1"});
  with("F32", "[1.5]", 4, {"1.5"});
  with("F32", "[1,1,1,1,1,1,1,1,1]", 4, {"at most 8 numbers"});
  with("F32", "[true]", 4, {"a boolean"});
}

TEST(SafetensorsHeader, MetadataIsStrings) {  // S6
  refused(R"({"__metadata__":{"a":1}})", {"__metadata__", "'a'", "expected a string"});
  refused(R"({"__metadata__":{"a":{}}})", {"__metadata__", "an object"});
  refused(R"({"__metadata__":{"a":["x"]}})", {"__metadata__", "an array"});
  refused(R"({"__metadata__":{"a":"x","a":"y"}})", {"'a' twice"});
  refused(R"({"__metadata__":"x"})", {"__metadata__", "a string"});
}

}  // namespace
}  // namespace turbo::model::testing
