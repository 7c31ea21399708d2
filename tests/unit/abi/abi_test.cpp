// Sizes and offsets of every ABI struct, and the value of every ABI constant, against sdk/abi-baseline/.
//
// Stable headers: a changed or vanished entry needs a new major version, an appended one a new minor version, and in
// both cases a new baseline. Draft headers may change freely, but not unnoticed.
// TURBO_ABI_BASELINE_WRITE=1 in the environment rewrites the baseline instead of comparing.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <turbo/abi/draft/device.h>
#include <turbo/abi/draft/drafters.h>
#include <turbo/abi/draft/tree_ops.h>
#include <turbo/abi/draft/verify_device.h>
#include <turbo/abi/drafter.h>
#include <turbo/abi/plugin.h>
#include <turbo/abi/sampler.h>
#include <turbo/abi/weight_format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <map>

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Member {
  std::string name;
  size_t offset, size, alignment;
};
struct Struct {
  std::string name;
  size_t size;
  std::vector<Member> members;
};

#define STRUCT(type) structs.push_back({#type, sizeof(type), {}});
#define MEMBER(type, member) \
  structs.back().members.push_back({#member, offsetof(type, member), sizeof(type::member), alignof(decltype(type::member))});

std::vector<Struct> stable() {
  std::vector<Struct> structs;
#include "stable_structs.inc"
  return structs;
}
std::vector<Struct> draft() {
  std::vector<Struct> structs;
#include "draft_structs.inc"
  return structs;
}

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
std::vector<fs::path> headers(const char* folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(fs::path(TURBO_SOURCE) / "sdk/include/turbo/abi" / folder))
    if (entry.path().extension() == ".h") found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

// "#define TURBO_NAME value" of the headers, guards left out.
Json constants(const char* folder) {
  Json all = Json::object();
  static const std::regex define(R"(#define (TURBO_\w+)\s+("[^"]*"|[0-9][0-9a-fx]*u?)\s)");
  for (const auto& header : headers(folder)) {
    const std::string text = text_of(header);
    for (std::sregex_iterator i(text.begin(), text.end(), define), end; i != end; ++i)
      if ((*i)[1] != "TURBO_ABI_MINOR") all[(*i)[1].str()] = (*i)[2].str();
  }
  return all;
}

// Member declarations of a struct's definition as text, comments gone, one blank between words. They catch what sizes
// cannot: changed signatures, and types of equal size.
std::vector<std::string> declarations(const std::string& text, size_t body) {
  static const std::regex comment(R"(/\*[^*]*\*+(?:[^/*][^*]*\*+)*/)"), blanks(R"(\s+)"), edge(R"(^ | $)");
  std::vector<std::string> found;
  std::string current;
  int depth = 0;
  const std::string plain = std::regex_replace(text.substr(body), comment, " ");
  for (const char c : plain) {
    if (c == '}' && depth == 0) break;
    depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    if (c != ';' || depth > 0) {
      current += c;
      continue;
    }
    found.push_back(std::regex_replace(std::regex_replace(current, blanks, " "), edge, ""));
    current.clear();
  }
  return found;
}
std::map<std::string, std::vector<std::string>> all_declarations(const char* folder) {
  static const std::regex definition(R"(typedef struct (turbo_\w+)\s*\{)");
  std::map<std::string, std::vector<std::string>> all;
  for (const auto& header : headers(folder)) {
    const std::string text = text_of(header);
    for (std::sregex_iterator i(text.begin(), text.end(), definition), end; i != end; ++i)
      all[(*i)[1]] = declarations(text, static_cast<size_t>(i->position() + i->length()));
  }
  return all;
}
size_t member_count(const std::vector<std::string>& declared) {
  size_t n = 0;
  for (const std::string& d : declared)
    n += 1 + (d.find("(*") != std::string::npos || d.find('{') != std::string::npos ? 0 : static_cast<size_t>(std::count(d.begin(), d.end(), ',')));
  return n;
}

Json layout(const std::vector<Struct>& structs, const char* folder) {
  const auto declared = all_declarations(folder);
  Json all = Json::object();
  for (const Struct& s : structs) {
    Json members = Json::object();
    for (const Member& m : s.members) members[m.name] = {m.offset, m.size};
    all[s.name] = {{"size", s.size}, {"members", members}, {"declarations", declared.at(s.name)}};
  }
  return all;
}

void compare(const Json& now, const char* file, const char* advice) {
  const fs::path path = fs::path(TURBO_SOURCE) / "sdk/abi-baseline" / file;
  if (std::getenv("TURBO_ABI_BASELINE_WRITE")) {
    fs::create_directories(path.parent_path());
    std::string text = now.dump(1);
    text = std::regex_replace(text, std::regex(R"(\[\s+(\d+),\s+(\d+)\s+\])"), "[$1, $2]");
    std::ofstream(path) << text << '\n';
    GTEST_SKIP() << "wrote " << path;
  }
  const Json then = Json::parse(text_of(path), nullptr, false);
  ASSERT_FALSE(then.is_discarded()) << path << " is missing or not JSON";
  for (const char* version : {"abi_major", "abi_minor"}) EXPECT_EQ(now.value(version, 0), then.value(version, 0)) << version << ". " << advice;
  for (const char* part : {"structs", "constants"}) {
    for (const auto& [name, value] : then[part].items())
      EXPECT_TRUE(now[part].contains(name) && now[part][name] == value)
          << name << " was " << value << " and is " << now[part].value(name, Json()) << ". " << advice;
    for (const auto& [name, value] : now[part].items())
      EXPECT_TRUE(then[part].contains(name)) << name << " is new. " << advice;
  }
}

void expect_complete(const std::vector<Struct>& structs, const char* folder) {
  std::map<std::string, size_t> listed;
  for (const Struct& s : structs) {
    listed[s.name] = s.members.size();
    size_t end = 0, alignment = 1;
    for (const Member& m : s.members) {
      EXPECT_EQ(m.offset, (end + m.alignment - 1) / m.alignment * m.alignment) << s.name << ": a member before " << m.name << " is not listed";
      end = m.offset + m.size;
      alignment = std::max(alignment, m.alignment);
    }
    EXPECT_EQ(s.size, (end + alignment - 1) / alignment * alignment) << s.name << ": its last member is not listed";
  }
  for (const auto& [name, declared] : all_declarations(folder)) {
    ASSERT_TRUE(listed.count(name)) << name << " is not listed";
    EXPECT_EQ(listed[name], member_count(declared)) << name << " has members that are not listed";
  }
}

}  // namespace

TEST(Abi, EveryStructAndMemberIsListed) {
  expect_complete(stable(), ".");
  expect_complete(draft(), "draft");
}

TEST(Abi, StableLayoutEqualsTheBaseline) {
  compare({{"abi_major", TURBO_ABI_MAJOR}, {"abi_minor", TURBO_ABI_MINOR}, {"structs", layout(stable(), ".")}, {"constants", constants(".")}},
          ("abi-" + std::to_string(TURBO_ABI_MAJOR) + ".json").c_str(),
          "The ABI changed: bump TURBO_ABI_MINOR for appended members and new ids, TURBO_ABI_MAJOR for anything else "
          "(sdk/include/turbo/abi/base.h), and write a new baseline in the same commit (TURBO_ABI_BASELINE_WRITE=1).");
}

TEST(Abi, DraftLayoutEqualsTheBaseline) {
  compare({{"structs", layout(draft(), "draft")}, {"constants", constants("draft")}}, "abi-draft.json",
          "A draft header changed: give the ids of the changed tables a new draft number if a built plugin could misread "
          "them, and write a new baseline in the same commit (TURBO_ABI_BASELINE_WRITE=1).");
}

TEST(Abi, SizedStructsBeginWithTheirSize) {
  // Parts that only live inside another struct carry no size of their own, nor do those that kernels take by value.
  const std::regex nested("turbo_op_.*|turbo_shard|turbo_device_table|turbo_device_kv|turbo_device_q8");
  for (const auto& structs : {stable(), draft()})
    for (const Struct& s : structs) {
      if (std::regex_match(s.name, nested)) continue;
      ASSERT_FALSE(s.members.empty());
      EXPECT_EQ(s.members[0].name, "struct_size") << s.name;
      EXPECT_EQ(s.members[0].size, 4u) << s.name;
    }
}

TEST(Abi, ConstantsAreFound) {
  const Json found = constants(".");
  EXPECT_GT(found.size(), 40u);
  EXPECT_EQ(found.value("TURBO_TYPE_Q1_0", ""), "41u");
  EXPECT_EQ(found.value("TURBO_PLUGIN_QUERY_SYMBOL", ""), "\"turbo_plugin_query\"");
}
