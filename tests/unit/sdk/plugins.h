// Paths of the plugins built for these tests.
#pragma once

#include <turbo/abi/drafter.h>
#include <turbo/fake/host.hpp>

#include <string>
#include <vector>

inline turbo_plugin_query_fn open_plugin(const std::string& folder, const std::string& library) {
  return turbo::fake::Library(std::string(TURBO_TEST_PLUGINS) + "/" + folder + "/lib" + library + ".so").query();
}
inline turbo_plugin_query_fn open_template(const std::string& kind) { return open_plugin("my_" + kind, "my_" + kind + "_cpu"); }
inline turbo_plugin_query_fn open_fixture(const std::string& name) { return open_plugin(name, name); }

struct Error : turbo_error {
  Error() : turbo_error{sizeof(turbo_error), 0, {}, {}} {}
};

// A proposal with room for `max_slots - 1` nodes.
struct Proposal {
  std::vector<int32_t> tokens, parents;
  std::vector<float> probabilities;
  turbo_proposal raw{};
  Proposal(uint32_t sequence, uint32_t max_slots) : tokens(max_slots), parents(max_slots), probabilities(max_slots) {
    raw = {sizeof(turbo_proposal), sequence, max_slots, 99, tokens.data(), parents.data(), probabilities.data(), 0};
    cut();
  }
  void cut() { tokens.back() = parents.back() = -77; }
  std::vector<int32_t> drafted() const { return {tokens.begin(), tokens.begin() + raw.n}; }
  std::vector<int32_t> drafted_parents() const { return {parents.begin(), parents.begin() + raw.n}; }
  bool untouched_past_capacity() const { return tokens.back() == -77 && parents.back() == -77; }
};
