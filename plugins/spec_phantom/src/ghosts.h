// The ghosts: threads that build the next drafts while the target verifies the present ones.
//
// After each proposal the engine thread posts a job: contexts and the drafts under verification. Ghost i takes outcomes
// i, i + n, i + 2n, ... of each draft in order of likelihood, builds a tree for each and publishes them in packs through
// a ring of its own. take() then finds the tree for what really happened, if somebody built it. A job that was replaced
// is given up; results of another job, another sequence, another length or another context are never used.
//
// post, take, scale, invalidate, learn, stop: [engine] (stop also [load]). Ghosts sleep when there is nothing to do.
#pragma once

#include "builder.h"

#include <turbo/draft/ring.hpp>
#include <turbo/plugin.hpp>

#include <condition_variable>
#include <memory>
#include <mutex>

namespace turbo::phantom {

struct GhostSettings {
  uint32_t n_threads = 0;  // ghosts that there are; 0 = none, everything happens on the engine thread
  uint32_t n_policies = 1;
  uint32_t n_buffers = 2;
  uint32_t window = 18;
  uint32_t max_slots = 16;  // of the drafts built ahead, root included
};

/// What a draft was built for.
struct DraftKey {
  uint64_t session = 0;   // never used twice
  uint64_t position = 0;  // committed tokens
  uint64_t context = 0;   // hash of the last of them
  int32_t root = 0;       // the last of them
  bool operator==(const DraftKey&) const = default;
};
uint64_t hash_context(std::span<const int32_t> tokens);

struct JobPart {
  uint64_t session = 0, position = 0;
  std::shared_ptr<const Text> text;
  uint32_t text_size = 0;
  std::vector<int32_t> context;  // newest tokens, at most Builder::context_length()
  draft::DraftNodes tree;        // being verified
  double acceptance = 0.5;
};
struct Job {
  uint64_t id = 0;
  bool repair = false;
  std::vector<JobPart> parts;
};

class Ghosts {
 public:
  static constexpr uint32_t kPack = 4;          // outcomes of a sequence in one slot
  static constexpr uint32_t kMostParts = 16;    // sequences of a job; the others are built when wanted
  static constexpr uint32_t kSlice = 64;        // tokens learned between two looks at the mailbox
  static constexpr uint32_t kMostBacklog = 64;  // texts that wait to be learned by a ghost

  Ghosts(draft::NgramCorpus& corpus, const draft::RejectedPairs& rejected, const GhostSettings& settings);
  ~Ghosts() { stop(); }
  Ghosts(const Ghosts&) = delete;
  Ghosts& operator=(const Ghosts&) = delete;

  /// [load] Spawns the threads through the host; fewer, or none, when it refuses. The host joins them after stop().
  void start(const Host& host);
  /// Asks all to end and waits until they have.
  void stop();
  uint32_t n_threads() const { return n_started_; }
  uint32_t n_active() const { return n_active_; }

  /// Replaces whatever is in the mailbox. The id is set here.
  void post(std::shared_ptr<Job> job);
  /// Every draft that is ready for one of `keys` is handed to use(index of the key, nodes, repaired), at most once each;
  /// those of fewer than `slots(index)` slots are not.
  template <typename Slots, typename Use>
  void take(std::span<const DraftKey> keys, Slots&& slots, Use&& use);
  /// How many ghosts work, 1..n_threads(). What the others have is dropped.
  void scale(uint32_t n);
  /// Drops every result, those under way included.
  void invalidate();

  /// Let the corpus hear up to `most` more tokens of `text`, unless somebody else is writing it. True: it has heard all.
  bool learn(Text& text, uint32_t most);
  /// Leave the rest to a ghost. False: there is none, or it has enough.
  bool learn_later(const std::shared_ptr<Text>& text);
  /// Empties the corpus and drops every result and every text that waits.
  void reset();

  /// Drafts that were finished ahead, ever.
  uint64_t n_built() const { return n_built_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    DraftKey key;
    draft::DraftNodes nodes;
    std::vector<uint8_t> repaired;
  };
  struct Pack {
    std::vector<Entry> entries;
    uint32_t n = 0;  // of entries in use; the others keep their memory
  };
  using Ring = draft::DraftRing<Pack>;
  struct Ghost {
    Ghost(Ghosts& pool, uint32_t index);
    uint32_t index;
    Ghosts& pool;
    Builder builder;
    Ring ring;
    std::vector<int32_t> context;
    std::vector<std::vector<Outcome>> plans;  // by part of the job
  };

  static void run(void* ghost) noexcept;
  void work(Ghost& ghost);
  void build_ahead(Ghost& ghost, const Job& job, uint32_t n_active);
  bool build_pack(Ghost& ghost, const Job& job, uint32_t n_active, uint32_t pack, Ring::Slot& slot);
  bool build_entry(Ghost& ghost, const Job& job, const JobPart& part, const Outcome& outcome, Entry& entry);
  void learn_slice(Text& text, uint32_t most);
  bool superseded(const Job& job) const { return latest_.load(std::memory_order_relaxed) != job.id; }
  static bool sound(const draft::DraftNodes& nodes, uint32_t slots);

  draft::NgramCorpus& corpus_;
  const draft::RejectedPairs& rejected_;
  GhostSettings settings_;
  std::vector<std::unique_ptr<Ghost>> ghosts_;
  uint32_t n_started_ = 0, n_active_ = 0;

  std::mutex corpus_mutex_;  // the right to write the corpus
  std::vector<int32_t> learn_context_;

  std::mutex mutex_;  // mailbox
  std::condition_variable wake_, ended_;
  std::shared_ptr<const Job> job_;
  std::vector<std::shared_ptr<Text>> backlog_;  // ghost 0 learns them
  uint32_t working_limit_ = 1;
  uint32_t n_running_ = 0;
  bool stopping_ = false;
  std::atomic<uint64_t> latest_{0};
  std::atomic<uint64_t> n_built_{0};
};

template <typename Slots, typename Use>
void Ghosts::take(std::span<const DraftKey> keys, Slots&& slots, Use&& use) {
  const uint64_t wanted = latest_.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < n_active_; ++i) {
    Ring& ring = ghosts_[i]->ring;
    // Each slot is given back, so the loop sees each once; a ghost may refill them only for the same job, which ends.
    for (uint32_t n = 0; n < ring.size(); ++n) {
      Ring::Slot* slot = ring.take([&](const draft::RingMeta& meta) {
        if (meta.job != wanted || meta.n_sequences == 0) return false;
        for (const DraftKey& key : keys)
          if (std::find(meta.roots.begin(), meta.roots.end(), key.root) != meta.roots.end()) return true;
        return false;
      });
      if (!slot) break;
      for (uint32_t e = 0; e < slot->payload.n; ++e) {
        const Entry& entry = slot->payload.entries[e];
        for (uint32_t k = 0; k < keys.size(); ++k)
          if (entry.key == keys[k] && slot->meta.max_slots >= slots(k) && sound(entry.nodes, slot->meta.max_slots))
            use(k, entry.nodes, entry.repaired);
      }
      ring.release(slot);
    }
  }
}

}  // namespace turbo::phantom
