// Base class of drafters over abi/drafter.h. Derive, override observe and propose, done:
//
//   class Mine : public turbo::Drafter<Mine> { public: explicit Mine(const turbo::Host&); ... };
//
// Overrides are public. All calls are [engine] except needs ([load]); a thrown turbo::Failure becomes a status.
#pragma once

#include <turbo/abi/drafter.h>
#include <turbo/plugin.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace turbo {

/// Committed tokens of a sequence, borrowed for the call.
class Observation {
 public:
  explicit Observation(const turbo_observation& raw) : raw_(raw) {}
  std::span<const int32_t> tokens() const { return {raw_.tokens, raw_.n_tokens}; }
  uint64_t position() const { return raw_.position; }
  uint32_t n_accepted() const { return raw_.n_accepted; }
  uint32_t n_taps() const { return raw_.n_taps; }
  /// Hidden states cover positions tap_position .. tap_position + n_tap_rows - 1; the newest token has none yet.
  uint64_t tap_position() const { return raw_.tap_position; }
  uint32_t n_tap_rows() const { return raw_.n_tap_rows; }
  /// Hidden state (n_embd floats, host memory) of tap `tap` at position tap_position + i; null when there is none or
  /// the tap lies on a device.
  const float* tap(uint32_t tap, uint32_t i) const {
    if (tap >= raw_.n_taps || i >= raw_.n_tap_rows || !raw_.taps || !raw_.tap_rows) return nullptr;
    const turbo_view& view = detail::element(raw_.taps, tap);
    if (view.memory == TURBO_MEMORY_DEVICE || view.type != TURBO_TYPE_F32) return nullptr;
    const auto row = static_cast<uint64_t>(raw_.tap_rows[i]);
    if (raw_.tap_rows[i] < 0 || row >= view.shape[0]) return nullptr;
    return reinterpret_cast<const float*>(static_cast<const char*>(view.data) + row * view.stride[0]);
  }
  const turbo_observation& raw() const { return raw_; }

 private:
  const turbo_observation& raw_;
};

/// A text that a sequence may turn into, borrowed for the call.
class Hypothesis {
 public:
  explicit Hypothesis(const turbo_hypothesis& raw) : raw_(raw) {}
  std::span<const int32_t> tokens() const { return {raw_.tokens, raw_.n_tokens}; }
  uint64_t position() const { return raw_.position; }
  uint32_t n_assumed() const { return raw_.n_assumed; }

 private:
  const turbo_hypothesis& raw_;
};

/// Writes one proposal. Keeps the tree legal: parents before children, distinct siblings, never past the capacity.
class DraftTree {
 public:
  static constexpr int32_t kRoot = -1;

  explicit DraftTree(turbo_proposal& proposal) : proposal_(proposal) { proposal.n = 0; }
  uint32_t sequence() const { return proposal_.sequence; }
  uint64_t deadline_ns() const { return proposal_.deadline_ns; }
  uint32_t capacity() const { return proposal_.max_slots > 0 ? proposal_.max_slots - 1 : 0; }
  uint32_t size() const { return proposal_.n; }
  bool full() const { return size() >= capacity(); }

  /// Node of `token` under `parent`; the existing one if that sibling is there already; nothing when full.
  std::optional<int32_t> add(int32_t token, int32_t parent, float probability = 0) {
    if (parent < kRoot || parent >= static_cast<int32_t>(size()))
      throw Failure(TURBO_INTERNAL, "draft node " + std::to_string(size()) + ": parent " + std::to_string(parent) + " does not exist");
    for (uint32_t i = 0; i < size(); ++i)
      if (proposal_.parents[i] == parent && proposal_.tokens[i] == token) return static_cast<int32_t>(i);
    if (full()) return std::nullopt;
    proposal_.tokens[size()] = token;
    proposal_.parents[size()] = parent;
    if (proposal_.probabilities) proposal_.probabilities[size()] = probability;
    return static_cast<int32_t>(proposal_.n++);
  }
  /// Tokens one below the other from `parent`, cut at the capacity.
  void chain(std::span<const int32_t> tokens, int32_t parent = kRoot) {
    for (const int32_t token : tokens) {
      const auto node = add(token, parent);
      if (!node) return;
      parent = *node;
    }
  }

 private:
  turbo_proposal& proposal_;
};

/// The proposals of one begin or poll call.
class Proposals {
 public:
  Proposals(turbo_proposal* first, uint32_t n) : first_(first), n_(n) {}
  uint32_t size() const { return n_; }
  turbo_proposal& operator[](uint32_t i) const { return detail::element(first_, i); }

 private:
  turbo_proposal* first_;
  uint32_t n_;
};

template <typename T>
class Drafter {
 public:
  virtual ~Drafter() = default;

  /// What it wants; the default: 8 slots, prompt tokens too, no taps.
  virtual void needs(turbo_drafter_needs& needs) {
    needs.max_slots = 8;
    needs.wants_prompt = 1;
  }
  virtual void open(uint32_t /*sequence*/) {}
  virtual void close(uint32_t /*sequence*/) {}
  virtual void observe(uint32_t /*sequence*/, const Observation& /*observation*/) {}
  /// Write a draft for one sequence, or nothing for "no draft".
  virtual void propose(DraftTree& /*draft*/) {}

  /// Drafters that work in the background override these two and leave propose alone. poll: false = not ready.
  virtual void begin(Proposals /*proposals*/) {}
  virtual bool poll(Proposals proposals) {
    for (uint32_t i = 0; i < proposals.size(); ++i) {
      DraftTree draft(proposals[i]);
      propose(draft);
    }
    return true;
  }
  virtual void cancel() {}
  /// Optional: override both.
  virtual std::vector<uint8_t> save(uint32_t /*sequence*/) { return {}; }
  virtual void restore(uint32_t /*sequence*/, std::span<const uint8_t> /*bytes*/) {}
  /// Optional, [worker]: the draft of a text that may come to be. One thread at a time calls it, while the engine thread may
  /// be in any other function.
  virtual void ahead(const Hypothesis& /*text*/, DraftTree& /*draft*/) {}

  static const void* interface(std::string_view id) {
    static constexpr turbo_drafter table = make_table();
    return id == TURBO_DRAFTER_1 ? &table : nullptr;
  }

 private:
  static T& at(void* self) {
    detail::check(self != nullptr, "drafter instance is null");
    return *static_cast<T*>(self);
  }
  static void check_proposals(turbo_proposal* proposals, uint32_t n) {
    detail::check(n == 0 || proposals, "proposals are null");
    for (uint32_t i = 0; i < n; ++i) {
      const turbo_proposal& proposal = detail::element(proposals, i);
      detail::check(TURBO_HAS(&proposal, deadline_ns), "proposal is too short");
      detail::check(proposal.max_slots <= 1 || (proposal.tokens && proposal.parents), "proposal arrays are null");
    }
  }
  static turbo_status c_needs(void* self, turbo_drafter_needs* needs, turbo_error* error) noexcept {
    return guarded(error, [&] {
      detail::check(needs && TURBO_HAS(needs, wants_prompt), "needs");
      detail::fill_out(needs, [&](turbo_drafter_needs& out) { at(self).needs(out); });
    });
  }
  static turbo_status c_open(void* self, uint32_t sequence, turbo_error* error) noexcept {
    return guarded(error, [&] { at(self).open(sequence); });
  }
  static void c_close(void* self, uint32_t sequence) noexcept {
    guarded(nullptr, [&] { at(self).close(sequence); });
  }
  static turbo_status c_observe(void* self, uint32_t sequence, const turbo_observation* observation, turbo_error* error) noexcept {
    return guarded(error, [&] {
      detail::check(observation && TURBO_HAS(observation, tap_rows), "observation");
      detail::check(observation->n_tokens == 0 || observation->tokens, "observed tokens are null");
      at(self).observe(sequence, Observation(*observation));
    });
  }
  static turbo_status c_begin(void* self, turbo_proposal* proposals, uint32_t n, turbo_error* error) noexcept {
    return guarded(error, [&] {
      check_proposals(proposals, n);
      at(self).begin(Proposals(proposals, n));
    });
  }
  static turbo_status c_poll(void* self, turbo_proposal* proposals, uint32_t n, turbo_error* error) noexcept {
    return guarded(error, [&]() -> turbo_status {
      check_proposals(proposals, n);
      return at(self).poll(Proposals(proposals, n)) ? TURBO_OK : TURBO_PENDING;
    });
  }
  static void c_cancel(void* self) noexcept {
    guarded(nullptr, [&] { at(self).cancel(); });
  }
  static turbo_status c_save(void* self, uint32_t sequence, void* dst, uint64_t* bytes, turbo_error* error) noexcept {
    return guarded(error, [&] {
      detail::check(bytes != nullptr, "save size is null");
      const std::vector<uint8_t> state = at(self).save(sequence);
      const uint64_t capacity = dst ? *bytes : 0;
      *bytes = state.size();
      if (capacity < state.size())
        throw Failure(TURBO_RESOURCE_EXHAUSTED, "sequence state: needs " + std::to_string(state.size()) + " bytes");
      if (!state.empty()) std::memcpy(dst, state.data(), state.size());
    });
  }
  static turbo_status c_restore(void* self, uint32_t sequence, const void* src, uint64_t bytes, turbo_error* error) noexcept {
    return guarded(error, [&] {
      detail::check(src || bytes == 0, "restore source is null");
      at(self).restore(sequence, {static_cast<const uint8_t*>(src), static_cast<size_t>(bytes)});
    });
  }
  static turbo_status c_ahead(void* self, const turbo_hypothesis* text, turbo_proposal* proposal, turbo_error* error) noexcept {
    return guarded(error, [&] {
      detail::check(text && TURBO_HAS(text, n_assumed), "hypothesis");
      detail::check(text->n_tokens > 0 && text->tokens && text->n_assumed <= text->n_tokens, "tokens of the hypothesis");
      check_proposals(proposal, 1);
      DraftTree draft(*proposal);
      at(self).ahead(Hypothesis(*text), draft);
    });
  }
  static constexpr turbo_drafter make_table() {
    constexpr bool asynchronous = !std::is_same_v<decltype(&T::begin), decltype(&Drafter::begin)>;
    constexpr bool foresees = !std::is_same_v<decltype(&T::ahead), decltype(&Drafter::ahead)>;
    constexpr bool saves = !std::is_same_v<decltype(&T::save), decltype(&Drafter::save)>;
    turbo_drafter table{};
    table.struct_size = sizeof table;
    table.needs = &c_needs;
    table.open = &c_open;
    table.close = &c_close;
    table.observe = &c_observe;
    table.begin = asynchronous ? &c_begin : nullptr;
    table.poll = &c_poll;
    table.cancel = &c_cancel;
    table.save = saves ? &c_save : nullptr;
    table.restore = saves ? &c_restore : nullptr;
    table.ahead = foresees ? &c_ahead : nullptr;
    return table;
  }
};

}  // namespace turbo
