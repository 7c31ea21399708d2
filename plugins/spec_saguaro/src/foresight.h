// Foresight: the thread that has drafts made for what a running verification may end with.
//
// After each proposal the engine thread posts a job: for each sequence its newest tokens and the draft under verification.
// The thread guesses outcomes (which node is accepted last, which token the target then says), has the inner drafter draft
// for each through turbo_drafter.ahead, likeliest first, and hands the drafts over. Both directions are rings of one
// producer and one consumer: neither side ever waits for the other, and what is not taken in time is overwritten. A job
// that was replaced is given up between two drafts.
//
// post, collect, check: [engine]. start, stop: [load].
#pragma once

#include <turbo/draft/inner_drafters.hpp>
#include <turbo/draft/outcome_cache.hpp>
#include <turbo/draft/ring.hpp>

#include <atomic>
#include <condition_variable>
#include <mutex>

namespace turbo::saguaro {

struct ForesightSettings {
  uint32_t guesses = 16;
  double miss_exponent = 1;
  uint32_t max_slots = 8;   // of the drafts made ahead, root included
  uint32_t vocabulary = 0;  // 0: not known
};

/// A sequence under verification.
struct Moment {
  draft::OutcomeKey key;
  uint32_t sequence = 0;
  double acceptance = 0.5;
  std::vector<int32_t> recent;  // newest tokens, TURBO_AHEAD_TOKENS or all
  draft::DraftNodes tree;
};

/// A draft for a moment that may come.
struct Guess {
  draft::OutcomeKey key;
  draft::DraftNodes tree;
};

class Foresight {
 public:
  static constexpr uint32_t kMostMoments = 16;
  static constexpr uint64_t kHangNs = 2'000'000'000;  // a draft that takes longer switches drafting ahead off
  static constexpr uint64_t kFirstNs = 500'000'000;   // how long start() waits for the first one

  Foresight(const Host& host, const turbo_drafter& table, void* self, const ForesightSettings& settings);
  ~Foresight() { stop(); }
  Foresight(const Foresight&) = delete;
  Foresight& operator=(const Foresight&) = delete;

  /// Empty, or why there will be no drafts: no thread, or the inner drafter's own words. It is asked for one draft, since a
  /// drafter over others knows only then whether all of them can; one that is slow about it is found out later, by check().
  std::string start();
  /// Asks the thread to end and waits until it has, as long as the host waits for it.
  void stop();

  /// fill(i, moment) writes moment i of n; its memory is that of an older one.
  template <typename Fill>
  void post(uint32_t n, Fill&& fill);
  /// use(guess) for all that was finished.
  template <typename Use>
  void collect(Use&& use);
  /// Null while the thread is well; else why it is of no use any more.
  const char* check();

  uint64_t n_built() const { return n_built_.load(std::memory_order_relaxed); }
  uint64_t n_faults() const { return n_faults_.load(std::memory_order_relaxed); }
  /// No job is waiting or under way. For tests.
  bool idle() const { return n_done_.load() == latest_.load(); }

 private:
  struct Job {
    std::vector<Moment> moments;
    uint32_t n = 0;
  };
  struct Pack {
    std::vector<Guess> guesses;
    uint32_t n = 0;
  };
  using Jobs = draft::DraftRing<Job>;
  using Results = draft::DraftRing<Pack>;
  struct Outcome {
    uint32_t moment;
    int32_t node, token;
    double weight;
  };

  static void run(void* self) noexcept;
  void try_once();
  void work();
  void foresee(uint64_t id, const Job& job);
  void guess_tokens(const Job& job, uint32_t moment);
  bool draft_ahead(const Moment& moment, int32_t node, const int32_t* token, uint32_t slots, draft::DraftNodes& out);
  bool superseded(uint64_t id) const { return latest_.load(std::memory_order_relaxed) > id; }  // stop() makes it so too

  const Host host_;
  const turbo_drafter& table_;
  void* const self_;
  const ForesightSettings settings_;

  Jobs jobs_{2};
  Results results_{draft::DraftRing<Pack>::kMostBuffers};
  std::atomic<uint64_t> latest_{0};  // job posted last; also what the thread sleeps on
  std::atomic<uint64_t> n_done_{0};
  std::atomic<uint64_t> busy_since_ns_{0};  // 0: not inside the inner drafter
  std::atomic<uint64_t> n_built_{0}, n_faults_{0};
  std::atomic<uint32_t> faults_in_a_row_{0};
  std::atomic<bool> stopping_{false}, unsupported_{false};
  const char* broken_ = nullptr;  // engine's

  std::mutex mutex_;  // of these
  std::condition_variable changed_;
  bool running_ = false, tried_ = false;
  std::string refusal_;

  // The thread's own.
  std::vector<double> probabilities_;
  std::vector<uint32_t> shares_;
  std::vector<Outcome> outcomes_;
  std::vector<int32_t> text_, path_;
  draft::DraftNodes next_;
};

template <typename Fill>
void Foresight::post(uint32_t n, Fill&& fill) {
  // Of two slots the thread has at most one.
  Jobs::Slot* slot = jobs_.begin_write();
  if (!slot) return;
  Job& job = slot->payload;
  const uint64_t id = latest_.load(std::memory_order_relaxed) + 1;
  try {
    if (job.moments.size() < n) job.moments.resize(n);
    for (uint32_t i = 0; i < n; ++i) fill(i, job.moments[i]);
  } catch (...) {
    jobs_.abandon(slot);
    throw;
  }
  job.n = n;
  slot->meta.job = id;
  jobs_.publish(slot);
  latest_.store(id, std::memory_order_release);
  latest_.notify_one();
}

template <typename Use>
void Foresight::collect(Use&& use) {
  // Each slot is given back, so a thread that refills them as fast as this reads cannot hold it here for long.
  for (uint32_t n = 0; n < results_.size(); ++n) {
    Results::Slot* slot = results_.take([](const draft::RingMeta&) { return true; });
    if (!slot) return;
    for (uint32_t i = 0; i < slot->payload.n; ++i) use(static_cast<const Guess&>(slot->payload.guesses[i]));
    results_.release(slot);
  }
}

}  // namespace turbo::saguaro
