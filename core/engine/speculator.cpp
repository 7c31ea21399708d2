#include "engine/speculator.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/clock.h"

namespace turbo::engine {
namespace {

// Told as the deadline to drafters that may work in the background. Others have none: what they take is measured.
constexpr uint64_t kProposalBudgetNs = 1'000'000;

// The ABI forbids exceptions; one that comes anyway must not end the engine.
turbo_status guarded(AbiError& failure, const std::function<turbo_status()>& body) {
  const auto threw = [&](const char* what) {
    fmt::format_to_n(failure.out()->message, sizeof(turbo_error::message) - 1, "it threw an exception: {}", what).out[0] = '\0';
    return TURBO_INTERNAL;
  };
  try {
    return body();
  } catch (const std::exception& exception) {
    return threw(exception.what());
  } catch (...) {
    return threw("of an unknown type");
  }
}

}  // namespace

Result<Speculator> Speculator::create(const EngineParts& parts) {
  Speculator speculator;
  if (!parts.drafter) return speculator;
  speculator.name_ = parts.drafter_name;
  turbo_drafter_needs& needs = speculator.needs_;
  needs.struct_size = sizeof needs;
  AbiError failure;
  TURBO_RETURN_IF_ERROR(failure.check(
      guarded(failure, [&] { return parts.drafter->needs(parts.drafter_self, &needs, failure.out()); }),
      "drafter '" + parts.drafter_name + "'"));
  if (needs.max_slots < 2 || needs.max_slots > 64 || needs.n_taps > TURBO_MAX_TAPS)
    return error(Code::invalid_argument, "drafter '{}': it asks for {} slots and {} taps (allowed: 2..64 and 0..{})",
                 parts.drafter_name, needs.max_slots, needs.n_taps, TURBO_MAX_TAPS);
  for (uint32_t i = 0; i < needs.n_taps; ++i)
    if (needs.tap_layers[i] < 0 || needs.tap_layers[i] > static_cast<int32_t>(parts.config->n_layers))
      return error(Code::invalid_argument, "drafter '{}': it asks for layer {} of a model with {}", parts.drafter_name,
                   needs.tap_layers[i], parts.config->n_layers);
  speculator.drafter_ = parts.drafter;
  speculator.self_ = parts.drafter_self;
  speculator.vocab_ = parts.config->vocab_size;
  speculator.max_slots_ = parts.draft_slots ? std::min(parts.draft_slots, needs.max_slots) : needs.max_slots;
  return speculator;
}

std::vector<int32_t> Speculator::tap_layers() const {
  return active() ? std::vector<int32_t>(needs_.tap_layers, needs_.tap_layers + needs_.n_taps) : std::vector<int32_t>{};
}

void Speculator::fault(const std::string& why) {
  ++total_faults_;
  ++faults_in_a_row_;
  spdlog::debug("drafter '{}': {}", name_, why);
  if (faults_in_a_row_ >= kMaxFaults) switch_off(why);
}

void Speculator::switch_off(const std::string& why) {
  if (disabled_) return;
  disabled_ = true;
  spdlog::warn("drafter '{}': switched off after {} faults in a row, the last: {}", name_, kMaxFaults, why);
}

turbo_status Speculator::call(AbiError& failure, const std::function<turbo_status()>& body) {
  const uint64_t begin = now_ns();
  const turbo_status status = guarded(failure, body);
  round_ns_ += now_ns() - begin;
  return status;
}

void Speculator::open(uint64_t sequence) {
  if (!active()) return;
  AbiError failure;
  const auto id = static_cast<uint32_t>(sequence);
  const Status status = failure.check(call(failure, [&] { return drafter_->open(self_, id, failure.out()); }), "open");
  if (status) open_.insert(id);
  else fault(status.message());
}

void Speculator::close(uint64_t sequence) {
  const auto id = static_cast<uint32_t>(sequence);
  if (!open_.erase(id)) return;
  AbiError failure;
  const turbo_status status = call(failure, [&] {
    drafter_->close(self_, id);
    return TURBO_OK;
  });
  if (const Status closed = failure.check(status, "close"); !closed) fault(closed.message());
}

void Speculator::observe(uint64_t sequence, const Observation& observation, std::span<const turbo_view> taps) {
  if (!active() || !is_open(sequence)) return;
  turbo_observation raw{};
  raw.struct_size = sizeof raw;
  raw.n_tokens = static_cast<uint32_t>(observation.tokens.size());
  raw.tokens = observation.tokens.data();
  raw.position = observation.position;
  raw.n_accepted = observation.n_accepted;
  raw.n_taps = static_cast<uint32_t>(taps.size());
  raw.taps = taps.data();
  raw.tap_position = observation.tap_position;
  raw.n_tap_rows = static_cast<uint32_t>(observation.tap_rows.size());
  raw.tap_rows = observation.tap_rows.data();
  AbiError failure;
  const Status status =
      failure.check(call(failure, [&] { return drafter_->observe(self_, static_cast<uint32_t>(sequence), &raw, failure.out()); }), "observe");
  if (status.is_ok()) return;
  // It missed tokens, so its view of this sequence is wrong from here on.
  fault(status.message());
  close(sequence);
}

void Speculator::propose(std::span<Want> wants) {
  if (!active() || wants.empty()) return;
  token_buffers_.resize(wants.size());
  parent_buffers_.resize(wants.size());
  probability_buffers_.resize(wants.size());
  proposals_.clear();
  const uint64_t deadline = needs_.runs_programs ? UINT64_MAX : now_ns() + kProposalBudgetNs;
  for (size_t i = 0; i < wants.size(); ++i) {
    const uint32_t capacity = wants[i].max_slots - 1;
    token_buffers_[i].assign(capacity, -1);
    parent_buffers_[i].assign(capacity, -1);
    probability_buffers_[i].assign(capacity, 0.0f);
    proposals_.push_back({sizeof(turbo_proposal), static_cast<uint32_t>(wants[i].sequence), wants[i].max_slots, 0,
                          token_buffers_[i].data(), parent_buffers_[i].data(), probability_buffers_[i].data(), deadline});
  }
  AbiError failure;
  ask(failure, wants);
  end_round();
}

// Of a text that no request sees, told twice: the first time compiles.
std::optional<Speculator::Price> Speculator::measure() {
  constexpr uint64_t kSubject = UINT32_MAX;
  constexpr uint32_t kTokens = 128;
  if (!active() || needs_.runs_programs == 0 || needs_.n_taps > 0) return {};
  const uint64_t faults_before = total_faults_;
  std::vector<int32_t> text;
  for (uint32_t i = 0; i <= kTokens; ++i) text.push_back(static_cast<int32_t>((i * 7919u + 13u) % vocab_));
  std::optional<Price> price;
  spec::DraftTree draft;
  Want want{kSubject, max_slots_, &draft};
  const auto timed = [&] {
    draft = {};
    const uint64_t begin = now_ns();
    propose({&want, 1});
    return seconds(now_ns() - begin);
  };
  for (int round = 0; round < 2 && total_faults_ == faults_before; ++round) {
    open(kSubject);
    observe(kSubject, {std::span(text).first(kTokens), 0, 0, {}, 0}, {});
    const double first = timed();
    observe(kSubject, {std::span(text).last(1), kTokens, 0, {}, 0}, {});
    const double again = timed();
    price.reset();
    if (draft.size() > 0) price = Price{again / draft.size(), std::max(0.0, first - again) / kTokens};
    close(kSubject);
  }
  // Real sequences may find it fit.
  faults_in_a_row_ = 0;
  return total_faults_ == faults_before ? price : std::nullopt;
}

void Speculator::ask(AbiError& failure, std::span<Want> wants) {
  const auto n = static_cast<uint32_t>(proposals_.size());
  const turbo_status begun = drafter_->begin ? call(failure, [&] { return drafter_->begin(self_, proposals_.data(), n, failure.out()); }) : TURBO_OK;
  turbo_status status = begun;
  if (begun == TURBO_OK) status = call(failure, [&] { return drafter_->poll(self_, proposals_.data(), n, failure.out()); });
  // It may still be at work on the arrays.
  if (drafter_->cancel && (begun != TURBO_OK || status == TURBO_PENDING)) {
    AbiError cancelling;
    const turbo_status cancelled = call(cancelling, [&] {
      drafter_->cancel(self_);
      return TURBO_OK;
    });
    if (const Status checked = cancelling.check(cancelled, "cancel"); !checked) fault(checked.message());
  }
  if (status == TURBO_PENDING) {
    ++not_ready_;
    return;
  }
  if (const Status checked = failure.check(status, begun == TURBO_OK ? "poll" : "begin"); !checked) return fault(checked.message());
  for (size_t i = 0; i < wants.size(); ++i) take(wants[i], proposals_[i].n, i);
}

// Faults are in a row until a round had none, from the observations before it to its drafts. One that was not ready says
// nothing.
void Speculator::end_round() {
  // Once is what a busy machine does to anybody.
  const bool slow = round_ns_ > kRoundLimitNs && needs_.runs_programs == 0;
  slow_in_a_row_ = slow ? slow_in_a_row_ + 1 : 0;
  if (slow_in_a_row_ == kMaxFaults) {
    total_faults_ += kMaxFaults;
    switch_off(fmt::format("it held the engine up for {} ms, {} are allowed", round_ns_ / 1'000'000, kRoundLimitNs / 1'000'000));
  }
  round_ns_ = 0;
  if (total_faults_ == faults_before_) faults_in_a_row_ = 0;
  faults_before_ = total_faults_;
}

void Speculator::take(Want& want, uint32_t n, size_t index) {
  const uint32_t capacity = want.max_slots - 1;
  if (n > capacity) return fault(fmt::format("{} nodes returned, {} asked for", n, capacity));
  const std::span<const int32_t> tokens(token_buffers_[index].data(), n), parents(parent_buffers_[index].data(), n);
  if (const char* why = spec::find_fault(tokens, parents, capacity, vocab_)) return fault(why);
  want.draft->tokens.assign(tokens.begin(), tokens.end());
  want.draft->parents.assign(parents.begin(), parents.end());
}

}  // namespace turbo::engine
