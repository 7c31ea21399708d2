// The factors of the pairwise test, and what each level does to a profile and to a request.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "covering_array.h"
#include "engine/request.h"
#include "profile/profile.h"

namespace turbo::engine::testing {

using Options = std::map<std::string, std::string>;

/// A drafter under test: how the profile names it, and settings of its own that are tried with it.
struct DrafterUnderTest {
  std::string name;
  std::vector<Options> options;
  std::string model{};           // of its own, beside the bundled target
  bool sets_most_slots = false;  // it has an option max_slots, which would cut draft_tokens
  std::vector<std::string> over{};  // drafters that it is composed of
  bool cached = false;              // behind the outcome cache
  std::string title() const { return (cached ? "cached " : "") + name; }
};

/// Every drafter of turbo. One more is one line here, and its library in CMakeLists.txt.
inline const std::vector<DrafterUnderTest>& drafters() {
  static const std::vector<DrafterUnderTest> all{
      {"ngram", {{}, {{"match_type", "PROB"}}, {{"suffix", "off"}, {"max_bfs_breadth", "2"}}, {{"max_trie_depth", "4"}, {"capacity", "600"}}}, "", true},
      {"phantom", {{}, {{"ghosts", "2"}, {"match_type", "PROB"}}, {{"ghosts", "3"}, {"buffers", "4"}, {"max_bfs_breadth", "2"}}, {{"ghosts", "4"}, {"buffers", "1"}, {"capacity", "600"}}}, "", true},
      {"standalone", {{}, {{"steps", "2"}, {"topk", "3"}}, {{"steps", "6"}}}, "models/turbo-nano-q1.gguf"},
      {"self_spec", {{{"layers", "4"}}, {{"layers", "2"}, {"steps", "2"}, {"topk", "2"}}}},
      {"ngram", {{{"suffix", "off"}}, {{"suffix", "off"}, {"match_type", "PROB"}}}, "", true, {}, true},
      {"first", {{}, {{"ngram.suffix", "off"}}}, "models/turbo-nano-q1.gguf", false, {"ngram", "standalone"}},
      {"merge", {{}, {{"phantom.ghosts", "2"}, {"standalone.topk", "2"}}}, "models/turbo-nano-q1.gguf", false, {"phantom", "standalone"}},
  };
  return all;
}

inline void use_drafter(profile::Profile& profile, const DrafterUnderTest& drafter, size_t options) {
  profile.drafter.name = drafter.name;
  profile.drafter.options = drafter.options.at(options % drafter.options.size());
  profile.drafter.over = drafter.over;
  profile.drafter.outcome_cache = drafter.cached;
  if (!drafter.model.empty()) profile.drafter.model = std::string(TURBO_SOURCE) + "/" + drafter.model;
  if (drafter.sets_most_slots) profile.drafter.options["max_slots"] = "64";  // draft_tokens decides
}

/// The factors in the order of a row.
enum Factor : size_t {
  kDrafter,
  kDrafterOptions,
  kDraftTokens,
  kAdaptive,
  kSampling,
  kPenalties,
  kMask,
  kEnd,
  kLogprobs,
  kBatch,
  kCodec,
  kChunk,
  kPrefixCache,
  kThreads,
  kPool,
  kFactors
};

struct Setting {
  std::string text;
  std::function<void(profile::Profile&)> tune;
  std::function<void(Request&)> ask;
};

/// "Whatever came last decides what may follow": about two thirds of the vocabulary, as a grammar does.
class FollowsMask : public TokenMask {
 public:
  FollowsMask(int32_t last, uint32_t vocab) : last_(last), vocab_(vocab) {}
  Status restrict_row(std::span<const int32_t> path, std::span<uint32_t> words) override {
    const auto last = static_cast<uint32_t>(path.empty() ? last_ : path.back());
    for (uint32_t token = 0; token < vocab_; ++token)
      if ((last * 31 + token * 17) % 3 == 0) words[token / 32] &= ~(1u << (token % 32));
    return Status::ok();
  }
  Status commit(std::span<const int32_t> tokens) override {
    last_ = tokens.back();
    return Status::ok();
  }

 private:
  int32_t last_;
  uint32_t vocab_;
};

inline constexpr uint32_t kVocabulary = 16384;
inline constexpr uint32_t kContext = 512;
inline constexpr uint32_t kTightPool = 256;  // holds the longest request and little more

/// Packed caches as they are, without what loading would measure first.
inline Options packed_options() { return {{"self_check", "off"}, {"boundary", "0"}}; }

/// Levels of each factor. `end_token` is a token that texts contain often.
inline std::vector<std::vector<Setting>> all_settings(int32_t end_token) {
  using P = profile::Profile;
  const auto plain = [](const std::string& text) { return Setting{text, {}, {}}; };
  const auto tuned = [](const std::string& text, std::function<void(P&)> tune) { return Setting{text, std::move(tune), {}}; };
  const auto asked = [](const std::string& text, std::function<void(Request&)> ask) { return Setting{text, {}, std::move(ask)}; };
  const auto sampled = [&](const std::string& text, Sampling sampling) {
    return asked(text, [sampling](Request& r) {
      r.sampling.temperature = sampling.temperature;
      r.sampling.top_k = sampling.top_k;
      r.sampling.top_p = sampling.top_p;
      r.sampling.min_p = sampling.min_p;
      r.sampling.typical_p = sampling.typical_p;
    });
  };
  std::vector<std::vector<Setting>> all(kFactors);
  for (const DrafterUnderTest& drafter : drafters()) all[kDrafter].push_back(plain(drafter.title()));
  for (const char* which : {"0", "1", "2", "3"}) all[kDrafterOptions].push_back(plain(which));
  for (const int n : {2, 3, 4, 8, 16, 64}) all[kDraftTokens].push_back(tuned(std::to_string(n), [n](P& p) { p.drafter.draft_tokens = n; }));
  for (const bool on : {false, true}) all[kAdaptive].push_back(tuned(on ? "on" : "off", [on](P& p) { p.drafter.adaptive = on; }));
  all[kSampling] = {sampled("greedy", {.temperature = 0}),
                    sampled("temperature 0.7", {.temperature = 0.7f}),
                    sampled("temperature 1, top-k 20", {.temperature = 1, .top_k = 20}),
                    sampled("temperature 1, top-p 0.8", {.temperature = 1, .top_p = 0.8f}),
                    sampled("temperature 0.7, min-p 0.1", {.temperature = 0.7f, .min_p = 0.1f}),
                    sampled("temperature 0.7, top-k 40, top-p 0.9, min-p 0.02, typical-p 0.9",
                            {.temperature = 0.7f, .top_k = 40, .top_p = 0.9f, .min_p = 0.02f, .typical_p = 0.9f})};
  all[kPenalties] = {plain("none"), asked("repetition 1.15", [](Request& r) { r.sampling.repetition_penalty = 1.15f; }),
                     asked("presence 0.4, frequency -0.2",
                           [](Request& r) {
                             r.sampling.presence_penalty = 0.4f;
                             r.sampling.frequency_penalty = -0.2f;
                           }),
                     asked("all", [](Request& r) {
                       r.sampling.repetition_penalty = 1.05f;
                       r.sampling.presence_penalty = 0.1f;
                       r.sampling.frequency_penalty = 0.1f;
                     })};
  all[kMask] = {plain("none"), asked("banned tokens",
                                     [](Request& r) {
                                       for (int32_t id = 300; id < static_cast<int32_t>(kVocabulary); id += 5) r.banned_tokens.push_back(id);
                                     }),
                asked("grammar", [](Request& r) { r.mask = std::make_shared<FollowsMask>(r.prompt.back(), kVocabulary); })};
  all[kEnd] = {plain("none"), asked("end token", [end_token](Request& r) { r.end_tokens = {end_token}; }),
               asked("end token after 8", [end_token](Request& r) {
                 r.end_tokens = {end_token};
                 r.min_tokens = 8;
               })};
  all[kLogprobs] = {plain("off"), asked("3", [](Request& r) {
                      r.logprobs = true;
                      r.n_top_logprobs = 3;
                    })};
  for (int n = 1; n <= 8; ++n) all[kBatch].push_back(plain(std::to_string(n)));
  for (const char* codec : {"f16", "tq4", "rq3_iso"})
    all[kCodec].push_back(tuned(codec, [codec](P& p) {
      p.kv.k = p.kv.v = codec;
      if (p.kv.k != "f16") p.kv.options = packed_options();
    }));
  for (const int n : {16, 100, 256}) all[kChunk].push_back(tuned(std::to_string(n), [n](P& p) { p.engine.prefill_chunk = n; }));
  for (const bool on : {false, true}) all[kPrefixCache].push_back(tuned(on ? "on" : "off", [on](P& p) { p.engine.prefix_cache = on; }));
  for (const int n : {1, 2}) all[kThreads].push_back(tuned(std::to_string(n), [n](P& p) { p.compute.threads = n; }));
  all[kPool] = {tuned("ample", [](P& p) { p.kv.pool_tokens = 10 * kContext; }),
                tuned("tight", [](P& p) { p.kv.pool_tokens = kTightPool; })};
  return all;
}

inline const char* factor_name(size_t factor) {
  static constexpr const char* kNames[] = {"drafter",  "options", "draft_tokens", "adaptive", "sampling", "penalties", "mask", "end",
                                           "logprobs", "batch",   "kv",           "chunk",    "prefix_cache", "threads", "pool"};
  static_assert(std::size(kNames) == kFactors);
  return kNames[factor];
}

}  // namespace turbo::engine::testing
