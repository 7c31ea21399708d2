// GGUF files on disk: real models, what is not a model, changes while mapped (G14), splits (G15), caps (G16).
#include <sys/stat.h>

#include <chrono>
#include <cstring>

#include "model/files/summary.h"
#include "model_test_util.h"

namespace turbo::model::testing {
namespace {

using enum Code;
namespace fs = std::filesystem;

const fs::path kModels = fs::path(TURBO_SOURCE) / "models";

TEST(GgufFiles, TurboMini) {
  const auto start = std::chrono::steady_clock::now();
  auto file = ModelFile::open(kModels / "turbo-mini-q1.gguf");
  ASSERT_TRUE(file) << file.status().message();
  RecordProperty(
      "open_us",
      int(std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count()));
  EXPECT_EQ((*file)->format(), Format::gguf);
  EXPECT_EQ((*file)->tensors().size(), 112u);  // 10 layers of 11, embedding, norm
  EXPECT_EQ((*file)->metadata().size(), 29u);
  EXPECT_EQ((*file)->file_bytes(), 12624096u);
  const Tensor* embedding = (*file)->find("token_embd.weight");
  ASSERT_TRUE(embedding);
  EXPECT_EQ(embedding->dims, (std::vector<uint64_t>{768, 16384}));
  EXPECT_EQ(embedding->type, type::q1_0);
  EXPECT_EQ(embedding->row_bytes(), 108u);
  EXPECT_EQ((*file)->find("blk.9.attn_q.weight")->dims, (std::vector<uint64_t>{768, 1024}));
  EXPECT_EQ((*file)->metadata().get_strings("tokenizer.ggml.tokens").value().size(), 16384u);
  EXPECT_TRUE((*file)->verify_unchanged());
  (*file)->drop_pages(*embedding);
  EXPECT_NE(embedding->data[0], std::byte{0xEE});  // still readable
}

TEST(GgufFiles, ReadInsteadOfMapped) {
  auto mapped = ModelFile::open(kModels / "turbo-nano-q1.gguf");
  auto read = ModelFile::open(kModels / "turbo-nano-q1.gguf", {.use_mmap = false});
  ASSERT_TRUE(mapped && read);
  ASSERT_EQ((*mapped)->tensors().size(), (*read)->tensors().size());
  for (const Tensor& tensor : (*mapped)->tensors()) {
    const Tensor* same = (*read)->find(tensor.name);
    ASSERT_TRUE(same);
    (*read)->drop_pages(*same);  // must keep the bytes
    EXPECT_EQ(std::memcmp(tensor.data, same->data, tensor.bytes), 0) << tensor.name;
  }
}

TEST(GgufFiles, LargeTokenListsLoadFast) {
  GgufWriter w;
  std::vector<std::string> tokens, merges;
  for (int i = 0; i < 151669; ++i) tokens.push_back("token" + std::to_string(i));
  for (int i = 0; i < 151387; ++i) merges.push_back("left" + std::to_string(i) + " right");
  w.texts("tokenizer.ggml.tokens", tokens).texts("tokenizer.ggml.merges", merges);
  const std::string bytes = w.build();
  const auto start = std::chrono::steady_clock::now();
  auto file = ModelFile::open_memory("t.gguf", as_bytes(bytes));
  const auto open_us =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count();
  ASSERT_TRUE(file);
  RecordProperty("open_us", int(open_us));
  const StringArray* list = (*file)->metadata().find_strings("tokenizer.ggml.tokens");
  ASSERT_TRUE(list);
  EXPECT_EQ((*list)[151668], "token151668");
}

TEST(GgufFiles, Summary) {
  auto file = ModelFile::open(kModels / "turbo-mini-q1.gguf");
  ASSERT_TRUE(file);
  const ModelSummary summary = summarize(**file);
  EXPECT_EQ(summary.architecture, "qwen3");
  EXPECT_EQ(summary.name, "turbo-mini");
  ASSERT_EQ(summary.types.size(), 2u);
  EXPECT_EQ(summary.types[0].type, "q1_0");
  EXPECT_EQ(summary.types[0].tensors, 71u);
  EXPECT_EQ(summary.types[1].type, "f32");
  EXPECT_EQ(summary.metadata.size(), 29u);
  const uint64_t attention = 768 * 1024 * 2 + 768 * 256 * 2, ffn = 3 * 768 * 2304, norms = 2 * 768 + 2 * 128;
  EXPECT_EQ(summary.parameters, 16384u * 768 + 10 * (attention + ffn + norms) + 768);
  for (const auto& [key, text] : summary.metadata) EXPECT_LE(text.size(), 64u) << key;
  EXPECT_NE(summary.to_json().find("\"architecture\":\"qwen3\""), std::string::npos);
  EXPECT_GT(summary.to_lines().size(), 30u);
}

TEST(GgufFiles, WhatIsNotAModelIsNamed) {  // S7 and friends; the extension does not matter
  TempFolder folder;
  const auto refused = [&](std::string_view bytes, const char* what) {
    const Status status = ModelFile::open(folder.write("m.gguf", bytes)).status();
    expect_failure(status, unsupported, {what}, "m.gguf");
    EXPECT_FALSE(status.hint().empty());
  };
  using namespace std::string_view_literals;
  refused("PK\x03\x04 archive"sv, "zip archive");
  refused("\x80\x02}q\x00"sv, "a pickle");
  refused("\x80\x04\x95\x10\x00"sv, "a pickle");
  refused("\x1f\x8b\x08\x00"sv, "gzip");
  refused("version https://git-lfs.github.com/spec/v1\noid"sv, "Git LFS pointer");
  refused("<!DOCTYPE html><html>"sv, "HTML page");
  refused("{\"a\": 1}"sv, "JSON");
  refused("lmgg\1\0\0\0"sv, "before GGUF");
  refused("hello world"sv, "hello wo");
  const Status pickle = ModelFile::open(folder.write("m.safetensors", "PK\x03\x04 archive"sv)).status();
  EXPECT_NE(pickle.hint().find("never loads pickle"), std::string::npos);
}

TEST(GgufFiles, OnlyRegularFiles) {
  TempFolder folder;
  EXPECT_EQ(ModelFile::open(folder.path() / "absent.gguf").status().code(), not_found);
  EXPECT_EQ(ModelFile::open("/dev/zero").status().code(), invalid_argument);
  const auto pipe = folder.path() / "pipe.gguf";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(ModelFile::open(pipe).status().message().find("a pipe"), std::string::npos);
  EXPECT_EQ(ModelFile::open(folder.path()).status().code(), not_found);  // empty folder
  expect_failure(ModelFile::open(folder.write("e.gguf", "")).status(), corrupt_input, {"empty"}, "e.gguf");
  const auto gguf = folder.write("f.gguf", TinyModel().writer().build());
  const Status hint = ModelFile::open(folder.path()).status();
  EXPECT_NE(hint.hint().find("e.gguf"), std::string::npos) << hint.hint();
}

TEST(GgufFiles, ChangesWhileOpenAreSeen) {  // G14
  const std::string bytes = TinyModel().writer().build();
  const auto check = [&](auto&& change, const char* what) {
    TempFolder folder;
    const auto path = folder.write("m.gguf", bytes);
    auto file = ModelFile::open(path);
    ASSERT_TRUE(file);
    ASSERT_TRUE((*file)->verify_unchanged());
    change(path);
    expect_failure((*file)->verify_unchanged(), corrupt_input, {what}, "m.gguf");
  };
  check([](const fs::path& p) { fs::resize_file(p, 100); }, "changed");
  check([](const fs::path& p) { fs::resize_file(p, 100000); }, "changed");
  check([](const fs::path& p) { fs::remove(p); }, "removed");
  check(
      [&](const fs::path& p) {
        std::ofstream(p.string() + ".new", std::ios::binary) << bytes;
        fs::rename(p.string() + ".new", p);
      },
      "replaced");
  check([](const fs::path& p) { fs::last_write_time(p, fs::last_write_time(p) + std::chrono::seconds(5)); },
        "written to");
}

// --- split models ---

GgufWriter part(uint16_t number, uint16_t count, int32_t tensors, const std::string& tensor) {
  GgufWriter w;
  if (number == 0) w.text("general.architecture", "qwen3").text("general.name", "m");
  w.u16("split.no", number).u16("split.count", count).i32("split.tensors.count", tensors);
  if (!tensor.empty()) w.tensor(tensor, {32}, 0, std::string(128, char('a' + number)));
  return w;
}

struct SplitFolder : TempFolder {
  SplitFolder() {
    write("m-00001-of-00003.gguf", part(0, 3, 3, "a").build());
    write("m-00002-of-00003.gguf", part(1, 3, 3, "b").build());
    write("m-00003-of-00003.gguf", part(2, 3, 3, "c").build());
  }
  Status open(int number = 1) const {
    return ModelFile::open(path() / ("m-0000" + std::to_string(number) + "-of-00003.gguf")).status();
  }
};

TEST(GgufSplit, OpensFromAnyPart) {
  const SplitFolder folder;
  for (int number : {1, 2, 3}) {
    auto file = ModelFile::open(folder.path() / ("m-0000" + std::to_string(number) + "-of-00003.gguf"));
    ASSERT_TRUE(file) << file.status().message();
    ASSERT_EQ((*file)->tensors().size(), 3u);
    EXPECT_EQ((*file)->metadata().get_string("general.name").value(), "m");
    EXPECT_EQ((*file)->find("c")->data[0], std::byte{'c'});
    EXPECT_EQ((*file)->find("c")->file_index, 2u);
    EXPECT_EQ((*file)->files().size(), 3u);
    (*file)->drop_pages(*(*file)->find("c"));
  }
}

TEST(GgufSplit, MissingRepeatedAndMixedParts) {  // G15
  {
    SplitFolder f;
    fs::remove(f.path() / "m-00002-of-00003.gguf");
    expect_failure(f.open(), not_found, {"m-00002-of-00003.gguf", "missing"}, "m-00001");
  }
  {
    SplitFolder f;
    f.write("m-00003-of-00003.gguf", part(1, 3, 3, "b").build());  // part 2 again
    expect_failure(f.open(), corrupt_input, {"split.no", "expected 2 but found 1"}, "m-00003");
  }
  {
    SplitFolder f;
    f.write("m-00003-of-00003.gguf", part(2, 4, 3, "c").build());
    expect_failure(f.open(), corrupt_input, {"split.count", "expected 3 but found 4"}, "m-00003");
  }
  {
    SplitFolder f;
    f.write("m-00003-of-00003.gguf", part(2, 3, 3, "a").build());
    expect_failure(f.open(), corrupt_input, {"tensor 'a'", "twice", "m-00001-of-00003.gguf"}, "m-00003");
  }
  {
    SplitFolder f;
    f.write("m-00003-of-00003.gguf", part(2, 3, 9, "c").build());
    expect_failure(f.open(), corrupt_input, {"split.tensors.count"}, "m-00003");
  }
  {
    SplitFolder f;
    f.write("m-00003-of-00003.gguf", part(2, 3, 3, "").build());  // one tensor short
    expect_failure(f.open(), corrupt_input, {"split.tensors.count", "expected 3", "found 2"}, "m-00001");
  }
  {
    SplitFolder f;
    f.write("m-00002-of-00003.gguf", part(1, 3, 3, "b").text("general.architecture", "llama").build());
    expect_failure(f.open(), corrupt_input, {"general.architecture", "qwen3", "llama"}, "m-00002");
  }
  {
    SplitFolder f;
    f.write("m-00002-of-00003.gguf", "GGU");
    expect_failure(f.open(), corrupt_input, {"header"}, "m-00002");
  }
}

TEST(GgufSplit, NamesAndLinks) {  // G15
  SplitFolder f;
  const auto renamed = f.write("model.gguf", part(0, 3, 3, "a").build());
  expect_failure(ModelFile::open(renamed).status(), corrupt_input, {"file name", "NAME-00001-of-00002.gguf"},
                 "model.gguf");
  const auto wrong = f.write("m-00004-of-00003.gguf", part(0, 3, 3, "a").build());
  expect_failure(ModelFile::open(wrong).status(), corrupt_input, {"file name", "4 of 3"}, "m-00004");
  TempFolder outside;
  const auto target = outside.write("other.gguf", part(1, 3, 3, "b").build());
  fs::remove(f.path() / "m-00002-of-00003.gguf");
  fs::create_symlink(target, f.path() / "m-00002-of-00003.gguf");
  expect_failure(f.open(), corrupt_input, {"m-00002-of-00003.gguf", "leads outside"}, "m-00001");
}

TEST(GgufSplit, HuggingFaceCacheLinksAreFine) {
  TempFolder repo;
  fs::create_directories(repo.path() / "blobs");
  fs::create_directories(repo.path() / "snapshots" / "rev");
  for (int i = 0; i < 2; ++i) {
    repo.write("blobs/" + std::to_string(i), part(uint16_t(i), 2, 2, std::string(1, char('a' + i))).build());
    fs::create_symlink("../../blobs/" + std::to_string(i),
                       repo.path() / "snapshots" / "rev" / ("m-0000" + std::to_string(i + 1) + "-of-00002.gguf"));
  }
  auto file = ModelFile::open(repo.path() / "snapshots" / "rev" / "m-00001-of-00002.gguf");
  ASSERT_TRUE(file) << file.status().message();
  EXPECT_EQ((*file)->tensors().size(), 2u);
}

TEST(GgufFiles, CapsOnSparseFiles) {  // G16: huge claims that the sparse file itself could satisfy
  TempFolder folder;
  const auto sparse = [&](const std::string& head) {
    const auto path = folder.write("s.gguf", head);
    fs::resize_file(path, 1ull << 40);
    return ModelFile::open(path).status();
  };
  GgufWriter w;
  w.tensor_count = int64_t(1) << 34;
  expect_failure(sparse(w.build()), resource_exhausted, {"tensor count", "at most 262144"}, "s.gguf");
  w = {};
  w.key_count = int64_t(1) << 34;
  expect_failure(sparse(w.build()), resource_exhausted, {"key count", "at most 65536"}, "s.gguf");
  w = {};
  w.pair("a", 9, GgufWriter::raw(uint32_t(0)) + GgufWriter::raw(uint64_t(1) << 39));
  expect_failure(sparse(w.build()), resource_exhausted, {"array elements"}, "s.gguf");
  w = {};
  w.pair("a", 8, GgufWriter::raw(uint64_t(1) << 39));
  expect_failure(sparse(w.build()), resource_exhausted, {"string bytes"}, "s.gguf");
}

TEST(GgufFiles, ReadingASparseFileIsRefusedBeforeMemoryIsTaken) {
  TempFolder folder;
  const auto path = folder.write("s.gguf", "GGUF");
  fs::resize_file(path, 1ull << 43);
  expect_failure(ModelFile::open(path, {.use_mmap = false}).status(), resource_exhausted, {"memory"}, "s.gguf");
}

}  // namespace
}  // namespace turbo::model::testing
