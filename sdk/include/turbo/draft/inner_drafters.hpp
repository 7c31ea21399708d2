// InnerDrafters: the inner drafters of a drafter that is composed over others, as the outer one drives them. [engine], the
// constructor [load].
//
// To each inner drafter this is its engine: it gets every observation, with n_accepted and hidden states of its own; its
// drafts are checked; one that errs, is late or draws nonsense costs its draft alone, and after kMaxFaults faults in a row
// it is left out for good. Names, counts and faults of all of them are told as metrics and log lines of the outer drafter.
#pragma once

#include <turbo/abi/draft/drafters.h>
#include <turbo/draft/draft_nodes.hpp>
#include <turbo/drafter.hpp>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace turbo::draft {

/// One draft wanted of an inner drafter.
struct InnerAsk {
  uint32_t sequence = 0, max_slots = 0;  // root included
  uint64_t deadline_ns = 0;
  DraftNodes tree;  // out; empty: no draft
};

class InnerDrafters {
 public:
  static constexpr uint32_t kMaxFaults = 16;
  static constexpr uint32_t kMostSlots = 64;

  /// Asks each what it needs. Throws Failure when there is no inner drafter or their needs do not go together.
  explicit InnerDrafters(const Host& host) : host_(host) {
    const auto* service = host.service<turbo_host_drafters>(TURBO_HOST_DRAFTERS_DRAFT);
    if (!service || service->count == 0)
      throw Failure(TURBO_INVALID_ARGUMENT, "it works over other drafters, but there is none",
                    "name them in the profile, for example drafter: { over: [ngram] }");
    if (const turbo_model_facts* facts = host.model()) vocabulary_ = facts->vocab_size;
    for (uint32_t i = 0; i < service->count; ++i) {
      try {
        add(*service, i);
      } catch (const Failure& failure) {
        if (i + 1 == service->count && inner_.empty()) throw;
        host_.log(TURBO_LOG_WARN, failure.message + "; the others go on without it");
      }
    }
    unite();
  }

  uint32_t size() const { return static_cast<uint32_t>(inner_.size()); }
  const std::string& name(uint32_t i) const { return inner_[i]->name; }
  const turbo_drafter& table(uint32_t i) const { return *inner_[i]->table; }
  void* self(uint32_t i) const { return inner_[i]->self; }
  const turbo_drafter_needs& needs_of(uint32_t i) const { return inner_[i]->needs; }
  bool active(uint32_t i) const { return !inner_[i]->off; }
  uint64_t faults(uint32_t i) const { return inner_[i]->total_faults; }
  uint32_t vocabulary() const { return vocabulary_; }  // 0: not known

  /// What all of them need together: the most slots, every layer that one of them taps, programs and prompts if one does.
  const turbo_drafter_needs& needs() const { return needs_; }

  void open(uint32_t sequence) {
    for (const auto& inner : inner_) {
      if (inner->off) continue;
      const turbo_status status = call(*inner, "open", [&](turbo_error* error) { return inner->table->open(inner->self, sequence, error); });
      if (status == TURBO_OK) inner->own.insert_or_assign(sequence, DraftNodes{});
    }
  }
  void close(uint32_t sequence) {
    for (const auto& inner : inner_) close(*inner, sequence);
  }

  void observe(uint32_t sequence, const Observation& observation) {
    for (const auto& inner : inner_) {
      const auto own = inner->own.find(sequence);
      if (own == inner->own.end() || inner->off) continue;
      turbo_observation told{};
      std::memcpy(&told, &observation.raw(), std::min<size_t>(observation.raw().struct_size, sizeof told));
      told.struct_size = sizeof told;
      // Of its own draft; what another one drafted and the target accepted is no success of this one.
      told.n_accepted = accepted_path(own->second, observation.tokens(), observation.n_accepted()).length;
      own->second.clear();
      take_views(*inner, observation.raw(), told);
      const turbo_status status =
          call(*inner, "observe", [&](turbo_error* error) { return inner->table->observe(inner->self, sequence, &told, error); });
      // It missed tokens, so its view of this sequence is wrong from here on.
      if (status != TURBO_OK) close(*inner, sequence);
    }
  }

  /// Fill the trees of `asks` with drafts of inner drafter i. Those that are not there at once stay empty.
  void ask(uint32_t i, std::span<InnerAsk*> asks) {
    Inner& inner = *inner_[i];
    asked_.clear();
    for (InnerAsk* ask : asks) {
      ask->tree.clear();
      if (ask->max_slots >= 2 && inner.own.count(ask->sequence)) asked_.push_back(ask);
    }
    if (inner.off || asked_.empty()) return;
    proposals_.clear();
    arrays_.resize(std::max(arrays_.size(), asked_.size()));
    for (size_t k = 0; k < asked_.size(); ++k) {
      const uint32_t slots = std::min(asked_[k]->max_slots, inner.needs.max_slots);
      DraftNodes& array = arrays_[k];
      array.tokens.assign(slots - 1, -1);
      array.parents.assign(slots - 1, -1);
      array.scores.assign(slots - 1, 0.0f);
      proposals_.push_back({sizeof(turbo_proposal), asked_[k]->sequence, slots, 0, array.tokens.data(), array.parents.data(),
                            array.scores.data(), asked_[k]->deadline_ns});
    }
    const auto n = static_cast<uint32_t>(proposals_.size());
    const turbo_status status = call(inner, "poll", [&](turbo_error* error) {
      if (inner.table->begin)
        if (const turbo_status begun = inner.table->begin(inner.self, proposals_.data(), n, error); begun != TURBO_OK) return begun;
      return inner.table->poll(inner.self, proposals_.data(), n, error);
    });
    if (status == TURBO_PENDING) host_.counter_add("inner_late", n);
    // One that failed may still be at work on the arrays too.
    if (status != TURBO_OK) cancel(inner);
    for (size_t k = 0; status == TURBO_OK && k < asked_.size(); ++k) take(inner, k);
    // Faults are in a row until a round had none, from the observations before it to its drafts.
    if (inner.total_faults == inner.faults_before) inner.faults_in_a_row = 0;
    inner.faults_before = inner.total_faults;
  }

  void cancel() {
    for (const auto& inner : inner_) cancel(*inner);
  }

  /// Whether the arrays are a legal draft for `slots` slots; `vocabulary` 0: not known. Null, or why not.
  static const char* fault_of(std::span<const int32_t> tokens, std::span<const int32_t> parents, uint32_t slots, uint32_t vocabulary) {
    if (tokens.size() != parents.size() || tokens.size() + 1 > slots) return "more nodes than asked for";
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (parents[i] < -1 || parents[i] >= static_cast<int32_t>(i)) return "a node comes before its parent";
      if (tokens[i] < 0 || (vocabulary > 0 && static_cast<uint32_t>(tokens[i]) >= vocabulary)) return "a token outside the vocabulary";
      for (size_t k = static_cast<size_t>(parents[i] + 1); k < i; ++k)
        if (parents[k] == parents[i] && tokens[k] == tokens[i]) return "two equal siblings";
    }
    return nullptr;
  }

 private:
  struct Inner {
    std::string name;
    const turbo_drafter* table = nullptr;
    void* self = nullptr;
    turbo_drafter_needs needs{};
    uint32_t taps[TURBO_MAX_TAPS] = {};  // its tap -> the united one
    std::unordered_map<uint32_t, DraftNodes> own;  // open sequences, with its draft under verification
    std::vector<turbo_view> views;
    uint32_t faults_in_a_row = 0;
    uint64_t total_faults = 0, faults_before = 0;  // and at the end of the last round
    bool off = false;
  };

  void add(const turbo_host_drafters& service, uint32_t i) {
    turbo_inner_drafter raw{};
    raw.struct_size = sizeof raw;
    if (service.inner(service.ctx, i, &raw) != TURBO_OK || !raw.table || !raw.name)
      throw Failure(TURBO_INTERNAL, "inner drafter " + std::to_string(i) + ": the host does not hand it out");
    auto inner = std::make_unique<Inner>();
    inner->name = raw.name;
    inner->table = raw.table;
    inner->self = raw.self;
    inner->needs.struct_size = sizeof inner->needs;
    turbo_error error{};
    error.struct_size = sizeof error;
    if (raw.table->needs(raw.self, &inner->needs, &error) != TURBO_OK)
      throw Failure(error.code ? error.code : TURBO_INTERNAL, "inner drafter '" + inner->name + "': " + error.message, error.hint);
    const turbo_drafter_needs& needs = inner->needs;
    if (needs.max_slots < 2 || needs.max_slots > kMostSlots || needs.n_taps > TURBO_MAX_TAPS)
      throw Failure(TURBO_INVALID_ARGUMENT, "inner drafter '" + inner->name + "': it asks for " + std::to_string(needs.max_slots) + " slots and " +
                                                std::to_string(needs.n_taps) + " taps (allowed: 2..64 and 0..8)");
    inner_.push_back(std::move(inner));
  }

  void unite() {
    for (const auto& inner : inner_) {
      needs_.max_slots = std::max(needs_.max_slots, inner->needs.max_slots);
      needs_.runs_programs |= inner->needs.runs_programs != 0;
      needs_.wants_prompt |= inner->needs.wants_prompt != 0;
      for (uint32_t t = 0; t < inner->needs.n_taps; ++t) {
        const int32_t layer = inner->needs.tap_layers[t];
        const auto* end = needs_.tap_layers + needs_.n_taps;
        const auto* at = std::find(static_cast<const int32_t*>(needs_.tap_layers), end, layer);
        inner->taps[t] = static_cast<uint32_t>(at - needs_.tap_layers);
        if (at != end) continue;
        if (needs_.n_taps == TURBO_MAX_TAPS)
          throw Failure(TURBO_UNSUPPORTED, "its inner drafters want hidden states of more than " + std::to_string(TURBO_MAX_TAPS) + " layers together",
                        "leave one of them out of drafter.over");
        needs_.tap_layers[needs_.n_taps++] = layer;
      }
    }
  }

  template <typename Call>
  turbo_status call(Inner& inner, const char* what, Call&& function) {
    turbo_error error{};
    error.struct_size = sizeof error;
    turbo_status status;
    try {
      status = function(&error);
    } catch (...) {  // not allowed by the ABI, and yet
      status = fill_error(&error, TURBO_INTERNAL, "it threw an exception");
    }
    if (status != TURBO_OK && status != TURBO_PENDING) fault(inner, std::string(what) + ": " + (error.message[0] ? error.message : "it failed"));
    return status;
  }

  void fault(Inner& inner, const std::string& why) {
    ++inner.total_faults;
    host_.counter_add("inner_faults");
    host_.log(TURBO_LOG_DEBUG, "inner drafter '" + inner.name + "': " + why);
    if (++inner.faults_in_a_row < kMaxFaults || inner.off) return;
    inner.off = true;
    host_.log(TURBO_LOG_WARN, "inner drafter '" + inner.name + "': left out after " + std::to_string(kMaxFaults) +
                                  " faults in a row, the last: " + why + "; the others go on");
  }

  void close(Inner& inner, uint32_t sequence) {
    if (inner.own.erase(sequence) == 0) return;
    try {
      inner.table->close(inner.self, sequence);
    } catch (...) {
    }
  }

  void cancel(Inner& inner) {
    try {
      if (inner.table->cancel) inner.table->cancel(inner.self);
    } catch (...) {
    }
    for (auto& [sequence, tree] : inner.own) tree.clear();
  }

  void take(Inner& inner, size_t k) {
    const turbo_proposal& proposal = proposals_[k];
    DraftNodes& array = arrays_[k];
    if (proposal.n >= proposal.max_slots) return fault(inner, "poll: more nodes than asked for");
    const std::span<const int32_t> tokens(array.tokens.data(), proposal.n), parents(array.parents.data(), proposal.n);
    if (const char* why = fault_of(tokens, parents, proposal.max_slots, vocabulary_)) return fault(inner, std::string("poll: ") + why);
    DraftNodes& tree = asked_[k]->tree;
    tree.tokens.assign(tokens.begin(), tokens.end());
    tree.parents.assign(parents.begin(), parents.end());
    tree.scores.assign(array.scores.begin(), array.scores.begin() + proposal.n);
    for (float& score : tree.scores)
      if (!(score >= 0 && score <= 1)) score = 0;
    inner.own[asked_[k]->sequence] = tree;
  }

  void take_views(Inner& inner, const turbo_observation& raw, turbo_observation& told) const {
    inner.views.clear();
    for (uint32_t t = 0; t < inner.needs.n_taps && raw.taps; ++t) {
      if (inner.taps[t] >= raw.n_taps) break;
      const turbo_view& source = detail::element(raw.taps, inner.taps[t]);
      turbo_view& view = inner.views.emplace_back();
      std::memcpy(&view, &source, std::min<size_t>(source.struct_size, sizeof view));
      view.struct_size = sizeof view;
    }
    told.n_taps = static_cast<uint32_t>(inner.views.size());
    told.taps = inner.views.empty() ? nullptr : inner.views.data();
  }

  const Host host_;
  uint32_t vocabulary_ = 0;
  turbo_drafter_needs needs_{};
  std::vector<std::unique_ptr<Inner>> inner_;
  std::vector<InnerAsk*> asked_;
  std::vector<turbo_proposal> proposals_;
  std::vector<DraftNodes> arrays_;
};

}  // namespace turbo::draft
