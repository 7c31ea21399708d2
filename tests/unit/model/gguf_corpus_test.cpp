// Every file of the fuzzing corpora through the readers: files that once did harm stay harmless.
#include <fstream>
#include <functional>
#include <iterator>

#include "model/config.h"
#include "model/files/safetensors_reader.h"
#include "model/files/weight_check.h"
#include "model_test_util.h"

namespace turbo::model::testing {
namespace {

size_t for_each_file(const char* corpus,
                     const std::function<void(const std::string& name, const std::string& bytes)>& use) {
  size_t n = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(TURBO_TEST_DATA) / "fuzz" / "corpus" / corpus)) {
    std::ifstream in(entry.path(), std::ios::binary);
    use(entry.path().filename().string(), std::string(std::istreambuf_iterator<char>(in), {}));
    ++n;
  }
  return n;
}

TEST(GgufCorpus, Survives) {
  size_t opened = 0, configured = 0;
  const size_t n = for_each_file("gguf", [&](const std::string& name, const std::string& bytes) {
    auto file = ModelFile::open_memory(name, as_bytes(bytes));
    if (!file) {
      EXPECT_FALSE(file.status().message().empty()) << name;
      return;
    }
    ++opened;
    (void)check_weights(**file);
    configured += read_config(**file).is_ok();
  });
  EXPECT_GE(n, 16u);
  EXPECT_GE(opened, 8u);
  EXPECT_GE(configured, 3u);
}

TEST(SafetensorsCorpus, Survives) {
  size_t opened = 0;
  const size_t n = for_each_file("safetensors", [&](const std::string& name, const std::string& bytes) {
    opened += read_safetensors(as_bytes(bytes), name).is_ok();
  });
  EXPECT_GE(n, 13u);
  EXPECT_GE(opened, 3u);
}

}  // namespace
}  // namespace turbo::model::testing
