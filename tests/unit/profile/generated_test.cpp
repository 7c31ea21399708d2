// The files generated from the key table, the shipped profiles, the JSON view and the fuzz corpus.
#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "profile/keys.h"
#include "profile/schema.h"
#include "support.h"

namespace turbo::profile {
namespace fs = std::filesystem;
namespace {

const fs::path source = TURBO_SOURCE;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void expect_up_to_date(const fs::path& file, const std::string& text) {
  if (std::getenv("TURBO_UPDATE_GENERATED") != nullptr) std::ofstream(file, std::ios::binary) << text;
  EXPECT_TRUE(read(file) == text) << file << " is out of date: run this test with TURBO_UPDATE_GENERATED=1";
}

TEST(Generated, SchemaIsUpToDate) {
  expect_up_to_date(source / "configs/profile.schema.json", json_schema().dump(2) + "\n");
}

TEST(Generated, ReferenceIsUpToDate) { expect_up_to_date(source / "docs/profiles.md", reference_markdown()); }

TEST(Generated, SchemaHasEveryKey) {
  const auto schema = json_schema();
  for (const KeySpec& spec : key_table()) {
    std::string pointer = "/properties/" + spec.path;
    for (size_t dot; (dot = pointer.find('.')) != std::string::npos;) pointer.replace(dot, 1, "/properties/");
    EXPECT_TRUE(schema.contains(nlohmann::ordered_json::json_pointer(pointer))) << spec.path;
  }
}

TEST(ShippedProfiles, AllLoad) {
  SearchPaths search;
  search.working_folder = source;
  search.config_folders = {source / "configs"};
  search.share_folders = {source};
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(source / "configs")) {
    if (entry.path().extension() != ".yaml") continue;
    ++count;
    const auto p = load_profile(entry.path().string(), {}, search);
    ASSERT_TRUE(p.is_ok()) << what(p);
    EXPECT_TRUE(fs::exists(p->model.path)) << entry.path() << ": " << p->model.path;
  }
  EXPECT_GE(count, 5u);
  EXPECT_EQ(load_profile("cpu-phantom", {}, search)->drafter.name, "phantom");
  const auto standard = load_profile(std::nullopt, {}, search);
  EXPECT_EQ(standard->tiers, std::vector<std::string>{"cpu"});
  EXPECT_EQ(load_profile("rx6700xt", {}, search)->tiers.size(), 3u);
}

TEST(Json, HasTheKeysOfTheYamlAndHidesSecrets) {
  const auto p =
      parse("server: { api_keys: [very-secret] }\nsampler: { top_p: 0.5 }\ndrafter: { name: phantom, ghosts: 2 }\n");
  const nlohmann::json json = to_json(*p);
  EXPECT_EQ(json["server"]["api_keys"][0], "***");
  EXPECT_EQ(json["server"]["port"], 30000);
  EXPECT_EQ(json["sampler"]["top_p"], 0.5);
  EXPECT_TRUE(json["sampler"]["seed"].is_null());
  EXPECT_EQ(json["drafter"]["options"]["ghosts"], "2");
  EXPECT_EQ(json["tiers"].size(), 3u);
  EXPECT_FALSE(contains(json.dump(), "very-secret"));
}

TEST(Fingerprint, FollowsSettingsOnly) {
  const auto print = [](const std::string& text) { return fingerprint(*parse(text)); };
  EXPECT_EQ(print("schema: 1\n"), print("# comment\nserver: { port: 30000 }\n"));
  EXPECT_EQ(print("schema: 1\n"), print("server: { api_keys: [a] }\n"));
  EXPECT_NE(print("schema: 1\n"), print("kv: { codec: q8 }\n"));
  EXPECT_NE(print("schema: 1\n"), print("sampler: { seed: 1 }\n"));
}

// Past crash files and one file per kind of bad input: each is answered, and parsing twice gives the same answer.
TEST(Corpus, EveryFileIsAnswered) {
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(TURBO_TEST_DATA) / "fuzz/corpus/profile")) {
    ++count;
    const std::string text = read(entry.path());
    const auto once = parse(text);
    EXPECT_EQ(what(once), what(parse(text))) << entry.path();
    EXPECT_NE(what(once), " | ") << entry.path();
  }
  EXPECT_GE(count, 20u);
}

}  // namespace
}  // namespace turbo::profile
