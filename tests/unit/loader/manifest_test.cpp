#include "loader/manifest.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "helpers.h"
#include "loader/files.h"
#include "loader/text.h"

namespace turbo::loader {
namespace {

namespace fs = std::filesystem;

const std::string good = stack_manifest("org.example.good", "cpu", "libgood.so");

std::string with(const std::string& from, const std::string& to) {
  std::string text = good;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Manifest, ReadsEveryField) {
  const auto manifest = parse_manifest(
      with("license: Apache-2.0\n", "license: Apache-2.0\nvendor: \"Exämple\"\ndescription: text\n"), "plugin.yaml");
  ASSERT_TRUE(manifest) << manifest.status().message();
  EXPECT_EQ(manifest->id, "org.example.good");
  EXPECT_EQ(manifest->version, "1.2.3");
  EXPECT_EQ(manifest->vendor, "Exämple");
  EXPECT_EQ(manifest->abi_major, 1u);
  ASSERT_EQ(manifest->libraries.size(), 1u);
  EXPECT_EQ(manifest->libraries[0].path, "libgood.so");
  ASSERT_EQ(manifest->libraries[0].components.size(), 7u);
  EXPECT_EQ(manifest->libraries[0].components[2].types, (std::vector<uint32_t>{0, 1}));
}

TEST(Manifest, RefusesWhatIsWrongAndSaysWhere) {
  const struct {
    std::string text, expected;
  } cases[] = {
      {"", "plugin.yaml:1"},
      {"# only a comment\n", "plugin.yaml:1"},
      {"[1, 2]\n", "expected keys and values"},
      {with("schema: 1", "schema: 2"), "schema: expected 1"},
      {with("schema: 1", "schema: 01"), "whole number"},
      {with("schema: 1\n", ""), "key 'schema' is missing"},
      {with("id: org.example.good", "id: two words.here"), "reverse DNS"},
      {with("id: org.example.good", "id: org..good"), "reverse DNS"},
      {with("id: org.example.good", "id: ../../etc"), "reverse DNS"},
      {with("id: org.example.good", "id: plain"), "reverse DNS"},
      {with("version: 1.2.3", "version: 1 2"), "version:"},
      {with("version: 1.2.3", "version: 1.2.3\nversion: 2"), "appears twice"},
      {with("license:", "licence:"), "unknown key 'licence'"},
      {with("minor: 0", "minor: 0, patch: 3"), "unknown key 'patch'"},
      {with("major: 1", "major: -1"), "whole number"},
      {with("major: 1", "major: 99999999999"), "whole number"},
      {with("path: libgood.so", "path: ../libgood.so"), "inside the plugin's folder"},
      {with("path: libgood.so", "path: /lib/libgood.so"), "inside the plugin's folder"},
      {with("path: libgood.so", "path: a/../../b.so"), "inside the plugin's folder"},
      {with("path: libgood.so\n", "path: libgood.so\n    sha256: 12ab\n"), "64 hex digits"},
      {with("kind: arch_pack", "kind: toaster"), "expected one of arch_pack"},
      {with("name: pack", "name: Pack"), "[a-z0-9_]"},
      {with("name: pack", "name: " + std::string(33, 'a')), "[a-z0-9_]"},
      {with("tier: cpu", "tier: gpu"), "hip, generic or cpu"},
      {with(", types: [41]", ""), "types: a weight_format lists"},
      {with("name: pack, tier: cpu", "name: pack, tier: cpu, types: [1]"), "only a weight_format"},
      {with("name: q8", "name: f16"), "listed twice"},
      {with("name: Stack", "name: &anchor Stack"), "anchor"},
      {with("name: Stack", "name: !!str Stack"), "tag"},
      {with("name: Stack", "name: *other"), "plugin.yaml:"},
      {with("name: Stack", "name: [[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]"), "levels of nesting"},
      {with("name: Stack", "name: " + std::string("a\x01z", 3)), "control byte 0x01"},
      {with("name: Stack", "name: " + std::string("\xff\xfe", 2)), "printable UTF-8"},
      {good + "---\nschema: 1\n", "second"},
      {std::string(70000, '#'), "at most 65536 bytes"},
      {std::string(60000, '['), "plugin.yaml:"},
      {std::string(60000, '{'), "plugin.yaml:"},
  };
  for (const auto& c : cases) {
    const auto manifest = parse_manifest(c.text, "plugin.yaml");
    ASSERT_FALSE(manifest) << c.expected << "\n" << c.text.substr(0, 400);
    EXPECT_TRUE(contains(manifest.status().message(), c.expected));
    EXPECT_TRUE(contains(manifest.status().message(), "plugin.yaml"));
  }
}

TEST(Manifest, UnknownKeySuggestsTheNearest) {
  const auto manifest = parse_manifest(with("license:", "licence:"), "plugin.yaml");
  EXPECT_EQ(manifest.status().hint(), "did you mean 'license'?");
}

TEST(Manifest, EveryLevelSuggestsTheNearestKey) {
  const struct {
    std::string from, to, hint;
  } cases[] = {
      {"license: Apache-2.0\n", "license: Apache-2.0\nvendro: x\n", "did you mean 'vendor'?"},
      {"license: Apache-2.0\n", "license: Apache-2.0\ndescripton: x\n", "did you mean 'description'?"},
      {"license: Apache-2.0\n", "license: Apache-2.0\nlibrarys: x\n", "did you mean 'libraries'?"},
      {"minor: 0", "minr: 0", "did you mean 'minor'?"},
      {"path: libgood.so\n", "path: libgood.so\n    sha265: 12\n", "did you mean 'sha256'?"},
      {"name: pack, tier: cpu", "name: pack, tier: cpu, need: [avx2]", "did you mean 'needs'?"},
      {"types: [41]", "type: [41]", "did you mean 'types'?"},
      {"kind: sampler", "kind: samplr", "did you mean 'sampler'?"},
      {"tier: cpu", "tier: genric", "did you mean 'generic'?"},
  };
  for (const auto& c : cases) {
    const auto manifest = parse_manifest(with(c.from, c.to), "plugin.yaml");
    ASSERT_FALSE(manifest) << c.to;
    EXPECT_EQ(manifest.status().hint(), c.hint) << manifest.status().message();
  }
}

TEST(Manifest, AnotherSchemaIsNamedBeforeItsKeys) {
  const auto manifest = parse_manifest(with("schema: 1\n", "schema: 2\nflavour: new\n"), "plugin.yaml");
  ASSERT_FALSE(manifest);
  EXPECT_TRUE(contains(manifest.status().message(), "schema: expected 1 but found 2"));
}

TEST(Manifest, TheDocumentedExampleIsRight) {
  const auto page = read_bounded(fs::path(TURBO_PLUGIN_README), 1 << 16);
  ASSERT_TRUE(page);
  const size_t begin = page->find("```yaml\n") + 8;
  ASSERT_LT(begin, page->size());
  std::string text = page->substr(begin, page->find("```", begin) - begin);
  const auto manifest = parse_manifest(text, "plugin.yaml");
  ASSERT_TRUE(manifest) << manifest.status().message();
  EXPECT_FALSE(manifest->vendor.empty());
  EXPECT_FALSE(manifest->description.empty());
  EXPECT_FALSE(manifest->libraries[0].sha256.empty());
  EXPECT_FALSE(manifest->libraries[0].components[0].needs.empty());
  // Each key of the schema has its row.
  for (const char* key : {"schema", "id", "name", "version", "abi", "vendor", "license", "description", "libraries",
                          "path", "sha256", "components", "kind", "tier", "types", "needs"})
    EXPECT_TRUE(contains(*page, fmt::format("| `{}`", key)));
}

TEST(Manifest, EveryCutIsAnErrorOrAWholeManifest) {
  for (size_t n = 0; n < good.size(); ++n) (void)parse_manifest(std::string_view(good).substr(0, n), "plugin.yaml");
  for (size_t n = 0; n < good.size(); ++n) {
    std::string text = good;
    text[n] = static_cast<char>(text[n] ^ 0x15);
    (void)parse_manifest(text, "plugin.yaml");
  }
}

TEST(Manifest, ReadsRegularFilesOnly) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder.path() / "fifo").c_str(), 0600), 0);
  EXPECT_TRUE(contains(read_manifest(folder.path() / "fifo").status().message(), "regular file"));
  EXPECT_TRUE(contains(read_manifest("/dev/zero").status().message(), "regular file"));
  EXPECT_TRUE(contains(read_manifest(folder.path()).status().message(), "regular file"));
  EXPECT_EQ(read_manifest(folder.path() / "absent").status().code(), Code::not_found);
}

TEST(Text, IsMadePrintable) {
  EXPECT_EQ(clean_text("ok \xc3\xa4"), "ok \xc3\xa4");
  EXPECT_EQ(clean_text(std::string("a\x01\xff\xc3z", 5)), "a???z");
  EXPECT_EQ(clean_text("a\nb"), "a b");
  EXPECT_EQ(clean_text(std::string(100, 'x'), 10), std::string(10, 'x') + "...");
  EXPECT_EQ(clean_text("\xed\xa0\x80"), "???");  // surrogate
  EXPECT_EQ(clean_c_text(nullptr), "");
}

}  // namespace
}  // namespace turbo::loader
