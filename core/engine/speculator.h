// The engine's side of a drafter: sessions, proposals, faults. Engine thread only.
//
// A drafter that errs, throws, holds the engine up or returns a malformed tree costs its draft of this step and a count;
// after kMaxFaults in a row it is switched off for good. It can never cost a token or a request. One that is not ready
// has no draft this time, which is no fault. What blocks inside a call cannot be broken off, only counted.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <unordered_set>

#include "base/abi_error.h"
#include "engine/parts.h"
#include "spec/draft_tree.h"

namespace turbo::engine {

class Speculator {
 public:
  static constexpr uint32_t kMaxFaults = 16;
  /// kMaxFaults rounds in a row in which the drafter's calls take longer than this on the engine thread are as many
  /// faults. One alone is none: a busy machine makes one of any drafter. Drafters with a network have no such limit:
  /// target runs are their work.
  static constexpr uint64_t kRoundLimitNs = 20'000'000;

  struct Want {
    uint64_t sequence;
    uint32_t max_slots;      // root included
    spec::DraftTree* draft;  // out
  };
  struct Observation {
    std::span<const int32_t> tokens;  // new and final
    uint64_t position = 0;            // of tokens[0]
    uint32_t n_accepted = 0;
    std::span<const int32_t> tap_rows;
    uint64_t tap_position = 0;
  };

  /// Asks the drafter what it needs; no drafter gives an inactive speculator.
  static Result<Speculator> create(const EngineParts& parts);

  bool active() const { return drafter_ != nullptr && !disabled_; }
  /// It keeps a KV cache of its own under the target's block ids.
  bool fills_blocks() const { return active() && needs_.runs_programs != 0; }
  bool wants_prompt() const { return needs_.wants_prompt != 0; }
  uint32_t max_slots() const { return max_slots_; }
  std::vector<int32_t> tap_layers() const;

  void open(uint64_t sequence);
  void close(uint64_t sequence);
  bool is_open(uint64_t sequence) const { return open_.count(static_cast<uint32_t>(sequence)) != 0; }
  void observe(uint64_t sequence, const Observation& observation, std::span<const turbo_view> taps);
  /// [before the first sequence] What drafts cost that are made by running programs; nothing for other drafters, those that
  /// need hidden states, and where it could not be measured.
  struct Price {
    double node_seconds;    // of a drafted node
    double unread_seconds;  // of a token that the drafter reads first
  };
  std::optional<Price> measure();
  /// Fill the drafts that arrive in time; the others stay empty. Never waits.
  void propose(std::span<Want> wants);

  uint64_t faults() const { return total_faults_; }
  /// Steps without drafts because poll was not ready.
  uint64_t not_ready() const { return not_ready_; }

 private:
  /// One call of the drafter: its time is counted, what it throws becomes a status.
  turbo_status call(AbiError& failure, const std::function<turbo_status()>& body);
  void ask(AbiError& failure, std::span<Want> wants);
  void end_round();
  void fault(const std::string& why);
  void switch_off(const std::string& why);
  void take(Want& want, uint32_t n, size_t index);

  const turbo_drafter* drafter_ = nullptr;
  void* self_ = nullptr;
  std::string name_;
  turbo_drafter_needs needs_{};
  uint32_t max_slots_ = 0, vocab_ = 0;
  std::unordered_set<uint32_t> open_;
  uint32_t faults_in_a_row_ = 0, slow_in_a_row_ = 0;
  uint64_t total_faults_ = 0, not_ready_ = 0;
  uint64_t round_ns_ = 0;        // in its calls since the last round
  uint64_t faults_before_ = 0;   // total_faults_ at the end of the last round
  bool disabled_ = false;
  std::vector<std::vector<int32_t>> token_buffers_, parent_buffers_;
  std::vector<std::vector<float>> probability_buffers_;
  std::vector<turbo_proposal> proposals_;
};

}  // namespace turbo::engine
