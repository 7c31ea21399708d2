#include "foresight.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace turbo::saguaro {
namespace {

constexpr int kNiceness = 10;           // where it and the target do meet on a core, the target goes first
constexpr uint32_t kTokenSlots = 32;    // slots asked for to learn which tokens may come next
constexpr uint64_t kStopBell = uint64_t{1} << 63;

}  // namespace

Foresight::Foresight(const Host& host, const turbo_drafter& table, void* self, const ForesightSettings& settings)
    : host_(host), table_(table), self_(self), settings_(settings) {}

std::string Foresight::start() {
  const auto* threads = host_.service<turbo_host_threads>(TURBO_HOST_THREADS);
  std::unique_lock lock(mutex_);
  running_ = threads != nullptr;
  lock.unlock();
  const bool spawned = threads && threads->spawn(threads->ctx, "saguaro", &run, this, nullptr) == TURBO_OK;
  lock.lock();
  if (!spawned) {
    running_ = false;
    return "the host gives no thread";
  }
  changed_.wait_for(lock, std::chrono::nanoseconds(kFirstNs), [this] { return tried_; });
  return refusal_;
}

void Foresight::stop() {
  stopping_.store(true);
  latest_.fetch_or(kStopBell);
  latest_.notify_all();
  // A thread that hangs inside the inner drafter is waited for by the host alone, which knows how long.
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::nanoseconds(kHangNs), [this] { return !running_; });
}

const char* Foresight::check() {
  if (broken_) return broken_;
  const uint64_t since = busy_since_ns_.load(std::memory_order_relaxed);
  if (since != 0 && host_.now_ns() > since + kHangNs) broken_ = "it has not come back from a draft for two seconds";
  if (faults_in_a_row_.load(std::memory_order_relaxed) >= draft::InnerDrafters::kMaxFaults) broken_ = "it failed 16 times in a row";
  // Each such answer is a fault too; this is why.
  if (unsupported_.load(std::memory_order_relaxed)) broken_ = "it cannot draft for a text that may come to be";
  return broken_;
}

void Foresight::run(void* argument) noexcept {
  Foresight& self = *static_cast<Foresight*>(argument);
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kNiceness);
  self.try_once();
  self.work();
  const std::lock_guard lock(self.mutex_);
  self.running_ = false;
  self.changed_.notify_all();
}

void Foresight::try_once() {
  int32_t token = 0, drafted = -1, parent = -1;
  float score = 0;
  const turbo_hypothesis text{sizeof(turbo_hypothesis), 1, &token, 0, 0, 0};
  turbo_proposal proposal{sizeof(turbo_proposal), 0, 2, 0, &drafted, &parent, &score, 0};
  turbo_error error{};
  error.struct_size = sizeof error;
  turbo_status status;
  busy_since_ns_.store(std::max<uint64_t>(host_.now_ns(), 1), std::memory_order_relaxed);
  try {
    status = table_.ahead(self_, &text, &proposal, &error);
  } catch (...) {
    status = TURBO_INTERNAL;
  }
  busy_since_ns_.store(0, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  tried_ = true;
  if (status == TURBO_UNSUPPORTED) {
    unsupported_.store(true, std::memory_order_relaxed);
    error.message[sizeof error.message - 1] = 0;
    refusal_ = error.message[0] ? error.message : "it cannot draft for a text that may come to be";
  }
  changed_.notify_all();
}

void Foresight::work() {
  uint64_t done = 0;
  while (!stopping_.load()) {
    latest_.wait(done, std::memory_order_acquire);
    if (stopping_.load()) return;
    uint64_t id = 0;
    Jobs::Slot* slot = jobs_.take([&](const draft::RingMeta& meta) { return meta.job > done; });
    // Overwritten between the bell and here: its successor rings again.
    if (!slot) {
      done = std::max(done, latest_.load() & ~kStopBell);
      n_done_.store(done);
      continue;
    }
    id = done = slot->meta.job;
    try {
      foresee(id, slot->payload);
    } catch (...) {  // out of memory: it goes without
      n_faults_.fetch_add(1, std::memory_order_relaxed);
    }
    jobs_.release(slot);
    n_done_.store(id);
  }
}

void Foresight::foresee(uint64_t id, const Job& job) {
  outcomes_.clear();
  for (uint32_t i = 0; i < job.n; ++i) {
    if (superseded(id)) return;
    guess_tokens(job, i);
  }
  std::stable_sort(outcomes_.begin(), outcomes_.end(), [](const Outcome& a, const Outcome& b) { return a.weight > b.weight; });
  // As many packs as the ring has places, so that none of this job overwrites another.
  const auto per_pack = static_cast<uint32_t>((outcomes_.size() + results_.size() - 1) / results_.size());
  for (size_t at = 0; at < outcomes_.size();) {
    Results::Slot* slot = results_.begin_write();
    if (!slot) return;
    Pack& pack = slot->payload;
    pack.n = 0;
    try {
      for (; pack.n < per_pack && at < outcomes_.size() && !superseded(id); ++at) {
        const Outcome& outcome = outcomes_[at];
        const Moment& moment = job.moments[outcome.moment];
        if (pack.guesses.size() == pack.n) pack.guesses.emplace_back();
        Guess& guess = pack.guesses[pack.n];
        if (!draft_ahead(moment, outcome.node, &outcome.token, settings_.max_slots, guess.tree) || guess.tree.size() == 0) continue;
        guess.key = moment.key;
        for (const int32_t token : path_) guess.key.hash = draft::hash_next(guess.key.hash, token);
        guess.key.length += path_.size();
        ++pack.n;
      }
    } catch (...) {
      results_.abandon(slot);
      throw;
    }
    if (pack.n == 0 || superseded(id)) {
      results_.abandon(slot);
      if (superseded(id)) return;
      continue;
    }
    n_built_.fetch_add(pack.n, std::memory_order_relaxed);
    slot->meta.job = id;
    results_.publish(slot);
  }
}

// What the target may say after each node, as far as the inner drafter knows, and not what was drafted there: had that been
// right, verification would have gone on.
void Foresight::guess_tokens(const Job& job, uint32_t index) {
  const Moment& moment = job.moments[index];
  const draft::DraftNodes& tree = moment.tree;
  draft::last_accepted(tree, moment.acceptance, probabilities_);
  draft::split_budget(probabilities_, settings_.miss_exponent, settings_.guesses, shares_);
  for (uint32_t i = 0; i < shares_.size(); ++i) {
    if (shares_[i] == 0) continue;
    const int32_t node = static_cast<int32_t>(i) - 1;
    if (!draft_ahead(moment, node, nullptr, kTokenSlots, next_)) continue;
    uint32_t n = 0;
    for (uint32_t k = 0; k < next_.size() && n < shares_[i]; ++k)
      if (next_.parents[k] < 0 && tree.find(next_.tokens[k], node) < 0)
        outcomes_.push_back({index, node, next_.tokens[k], probabilities_[i] / (1 << std::min(n++, 20u))});
  }
}

// The inner drafter's draft after the path to `node` and, if not null, `token`. The path stays in path_. False: none.
bool Foresight::draft_ahead(const Moment& moment, int32_t node, const int32_t* token, uint32_t slots, draft::DraftNodes& out) {
  path_.clear();
  for (int32_t at = node; at >= 0; at = moment.tree.parents[static_cast<uint32_t>(at)]) path_.push_back(moment.tree.tokens[static_cast<uint32_t>(at)]);
  std::reverse(path_.begin(), path_.end());
  if (token) path_.push_back(*token);
  text_.assign(moment.recent.begin(), moment.recent.end());
  text_.insert(text_.end(), path_.begin(), path_.end());
  out.clear();
  out.tokens.assign(slots - 1, -1);
  out.parents.assign(slots - 1, -1);
  out.scores.assign(slots - 1, 0.0f);
  const turbo_hypothesis text{sizeof(turbo_hypothesis), static_cast<uint32_t>(text_.size()), text_.data(), moment.key.length - moment.recent.size(),
                              static_cast<uint32_t>(path_.size()), 0};
  turbo_proposal proposal{sizeof(turbo_proposal), moment.sequence, slots, 0, out.tokens.data(), out.parents.data(), out.scores.data(), 0};
  turbo_status status;
  busy_since_ns_.store(std::max<uint64_t>(host_.now_ns(), 1), std::memory_order_relaxed);
  try {
    status = table_.ahead(self_, &text, &proposal, nullptr);
  } catch (...) {
    status = TURBO_INTERNAL;
  }
  busy_since_ns_.store(0, std::memory_order_relaxed);
  const uint32_t n = status == TURBO_OK && proposal.n < slots ? proposal.n : 0;
  out.tokens.resize(n);
  out.parents.resize(n);
  out.scores.resize(n);
  if (status == TURBO_UNSUPPORTED) unsupported_.store(true, std::memory_order_relaxed);
  if (status != TURBO_OK || proposal.n >= slots || draft::InnerDrafters::fault_of(out.tokens, out.parents, slots, settings_.vocabulary)) {
    n_faults_.fetch_add(1, std::memory_order_relaxed);
    faults_in_a_row_.fetch_add(1, std::memory_order_relaxed);
    out.clear();
    return false;
  }
  faults_in_a_row_.store(0, std::memory_order_relaxed);
  return true;
}

}  // namespace turbo::saguaro
