// Folders with config.json and safetensors: names, indexes (S6), foreign content (S7).
#include <cstring>

#include "model_test_util.h"

namespace turbo::model::testing {
namespace {

using enum Code;
namespace fs = std::filesystem;

const fs::path kTiny = fs::path(TURBO_TEST_DATA) / "golden" / "tiny-random";

std::string file_of(const std::vector<std::string>& names) {
  std::string header = "{";
  for (size_t i = 0; i < names.size(); ++i) {
    header +=
        fmt::format(R"({}"{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})", i ? "," : "", names[i], i, i + 1);
  }
  header += "}";
  return GgufWriter::raw(uint64_t(header.size())) + header + std::string(names.size(), 'x');
}

TEST(SafetensorsFolder, CanonicalNames) {
  auto file = ModelFile::open(kTiny / "qwen3");
  ASSERT_TRUE(file) << file.status().message();
  for (const char* name : {"token_embd.weight", "output_norm.weight", "blk.0.attn_norm.weight", "blk.2.attn_q.weight",
                           "blk.2.attn_k.weight", "blk.2.attn_v.weight", "blk.1.attn_q_norm.weight",
                           "blk.1.attn_k_norm.weight", "blk.1.attn_output.weight", "blk.1.ffn_norm.weight",
                           "blk.1.ffn_gate.weight", "blk.1.ffn_up.weight", "blk.1.ffn_down.weight"}) {
    EXPECT_TRUE((*file)->find(name)) << name;
  }
  for (const Tensor& tensor : (*file)->tensors()) EXPECT_FALSE(tensor.source_name.empty()) << tensor.name;
  // Either name finds it, and {in, out} is the file's [out, in].
  const Tensor* down = (*file)->find("model.layers.1.mlp.down_proj.weight");
  ASSERT_TRUE(down);
  EXPECT_EQ(down->name, "blk.1.ffn_down.weight");
  EXPECT_EQ(down->dims, (std::vector<uint64_t>{160, 64}));
  EXPECT_NE((*file)->config_json().find("Qwen3ForCausalLM"), std::string::npos);
  EXPECT_EQ((*file)->name(), "qwen3");

  auto qwen2 = ModelFile::open(kTiny / "qwen2");
  ASSERT_TRUE(qwen2);
  EXPECT_EQ((*qwen2)->find("blk.1.attn_k.bias")->dims, (std::vector<uint64_t>{32}));
  auto llama = ModelFile::open(kTiny / "llama3");
  ASSERT_TRUE(llama);
  EXPECT_TRUE((*llama)->find("output.weight"));
}

TEST(SafetensorsFolder, ALoneFileOpens) {
  auto file = ModelFile::open(kTiny / "qwen3" / "golden.safetensors");
  ASSERT_TRUE(file) << file.status().message();
  EXPECT_TRUE((*file)->find("logits"));
  EXPECT_TRUE((*file)->find("input_ids"));
}

TEST(SafetensorsFolder, DraftHeadsKeepTheirNames) {
  TempFolder folder;
  folder.write("config.json", "{}");
  folder.write("model.safetensors",
               file_of({"fc.weight", "midlayer.self_attn.q_proj.weight", "lm_head.weight", "norm.weight", "d2t"}));
  auto file = ModelFile::open(folder.path());
  ASSERT_TRUE(file) << file.status().message();
  EXPECT_TRUE((*file)->find("lm_head.weight"));
  EXPECT_TRUE((*file)->find("d2t"));
  EXPECT_FALSE((*file)->find("output.weight"));
}

TEST(SafetensorsFolder, OddNamesAreKept) {
  TempFolder folder;
  folder.write("config.json", "{}");
  folder.write("model.safetensors", file_of({"model.layers.01.mlp.up_proj.weight", "model.layers.x.mlp.up_proj.weight",
                                             "model.layers.99999999.mlp.up_proj.weight",
                                             "model.layers.1.mlp.up_proj.scale", "model.layers."}));
  auto file = ModelFile::open(folder.path());
  ASSERT_TRUE(file) << file.status().message();
  for (const Tensor& tensor : (*file)->tensors()) EXPECT_TRUE(tensor.source_name.empty()) << tensor.name;
}

TEST(SafetensorsFolder, TwoNamesForOneTensorAreRefused) {
  TempFolder folder;
  folder.write("config.json", "{}");
  folder.write("model.safetensors", file_of({"model.norm.weight", "output_norm.weight"}));
  expect_failure(ModelFile::open(folder.path()).status(), corrupt_input, {"output_norm.weight", "twice"},
                 "model.safetensors");
}

struct Sharded : TempFolder {
  Sharded() {
    write("config.json", "{}");
    // The head comes first: names are decided by the whole index, not by one shard.
    write("model-00001-of-00002.safetensors", file_of({"lm_head.weight"}));
    write("model-00002-of-00002.safetensors", file_of({"model.norm.weight", "a"}));
    index(R"("model.norm.weight":"model-00002-of-00002.safetensors","a":"model-00002-of-00002.safetensors",)"
          R"("lm_head.weight":"model-00001-of-00002.safetensors")");
  }
  void index(const std::string& entries) const {
    write("model.safetensors.index.json", R"({"metadata":{"total_size":3},"weight_map":{)" + entries + "}}");
  }
  void refused(Code code, std::initializer_list<std::string_view> parts,
               std::string_view file = "model.safetensors.index.json") const {
    expect_failure(ModelFile::open(path()).status(), code, parts, file);
  }
};

TEST(SafetensorsIndex, ReadsShards) {
  const Sharded f;
  auto file = ModelFile::open(f.path());
  ASSERT_TRUE(file) << file.status().message();
  EXPECT_EQ((*file)->tensors().size(), 3u);
  EXPECT_EQ((*file)->files().size(), 2u);
  EXPECT_EQ((*file)->find("output.weight")->file_index, 0u);
  EXPECT_TRUE((*file)->find("output_norm.weight"));
}

TEST(SafetensorsIndex, NamesStayInsideTheFolder) {  // S6, G15
  Sharded f;
  TempFolder outside;
  outside.write("o.safetensors", file_of({"a"}));
  for (const char* bad :
       {"../o.safetensors", "/etc/passwd", "sub/o.safetensors", "..", ".", "", "a\\\\b", "a\\u0000b"}) {
    f.index(fmt::format(R"("a":"{}")", bad));
    f.refused(corrupt_input, {"inside the model's folder"});
  }
  fs::create_symlink(outside.path() / "o.safetensors", f.path() / "link.safetensors");
  f.index(R"("a":"link.safetensors")");
  f.refused(corrupt_input, {"link.safetensors", "leads outside"});
  f.index(R"("a":"absent.safetensors")");
  f.refused(not_found, {"absent.safetensors", "missing"});
}

TEST(SafetensorsIndex, MustAgreeWithTheFiles) {  // S6
  Sharded f;
  f.index(R"("a":"model-00002-of-00002.safetensors")");
  f.refused(corrupt_input, {"tensor 'model.norm.weight'", "does not place it there"});
  f.index(
      R"("a":"model-00002-of-00002.safetensors","model.norm.weight":"model-00002-of-00002.safetensors","more":"model-00002-of-00002.safetensors")");
  f.refused(corrupt_input, {"expected 3 tensors but found 2"});
  f.index(R"("a":1)");
  f.refused(corrupt_input, {"tensor 'a'", "file name"});
  f.index("");
  f.refused(corrupt_input, {"weight_map"});
  f.write("model.safetensors.index.json", R"({"weight_map":[]})");
  f.refused(corrupt_input, {"weight_map"});
  f.write("model.safetensors.index.json", R"({"weight_map":{"a":"x","a":"y"}})");
  f.refused(corrupt_input, {"'a' is there twice"});
  f.write("model.safetensors.index.json", "{\"weight_map\":" + std::string(100'000, '['));
  f.refused(corrupt_input, {"32 levels"});
  f.write("model.safetensors.index.json", R"({"weight_map":{"a":"x"}} trailing)");
  f.refused(corrupt_input, {"invalid JSON at byte"});
}

TEST(SafetensorsFolder, ForeignContent) {  // S7
  using namespace std::string_view_literals;
  TempFolder folder;
  folder.write("config.json", "{}");
  folder.write("model.safetensors", "PK\x03\x04zip"sv);
  const Status zip = ModelFile::open(folder.path()).status();
  expect_failure(zip, unsupported, {"zip"}, "model.safetensors");
  EXPECT_NE(zip.hint().find("never loads pickle"), std::string::npos);
  folder.write("model.safetensors", "\x80\x02}q"sv);
  expect_failure(ModelFile::open(folder.path()).status(), unsupported, {"pickle"}, "model.safetensors");
  folder.write("model.safetensors", "version https://git-lfs.github.com/spec/v1"sv);
  expect_failure(ModelFile::open(folder.path()).status(), unsupported, {"Git LFS"}, "model.safetensors");
  fs::remove(folder.path() / "model.safetensors");
  folder.write("pytorch_model.bin", "PK\x03\x04zip"sv);
  EXPECT_NE(ModelFile::open(folder.path()).status().message().find("'pytorch_model.bin', which is a pickle"),
            std::string::npos);
}

TEST(SafetensorsFolder, ConfigJsonIsStrict) {
  TempFolder folder;
  folder.write("model.safetensors", file_of({"a"}));
  EXPECT_EQ(ModelFile::open(folder.path()).status().code(), not_found);
  const auto bad = [&](const std::string& text, const char* part) {
    folder.write("config.json", text);
    const Status status = ModelFile::open(folder.path()).status();
    ASSERT_FALSE(status) << text.substr(0, 50);
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("config.json"), std::string::npos) << status.message();
  };
  bad("", "invalid JSON");
  bad("[]", "object");
  bad("{\"a\":1,\"a\":2}", "twice");
  bad(std::string("{}\0x", 4), "NUL");
  bad("{\"a\":" + std::string(50, '[') + std::string(50, ']') + "}", "32 levels");
  bad("{\"\xff\":1}", "UTF-8");
  bad(std::string((16u << 20) + 1, ' '), "at most 16777216 bytes");
  std::string many = "{\"a\":[";
  for (int i = 0; i < 1'000'001; ++i) many += "1,";
  bad(many + "1]}", "at most 1000000 values");
}

}  // namespace
}  // namespace turbo::model::testing
