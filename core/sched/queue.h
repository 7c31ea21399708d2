// Who waits, and whose turn it is. Engine thread only.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "sched/sequence.h"

namespace turbo::sched {

/// Rows computed for each client that has requests, so that one who sends many requests does not starve one who sends
/// few. A client that comes back from idling starts level with the least served one: idling saves nothing up.
/// (Virtual token counters: Sheng et al., "Fairness in Serving Large Language Models", 2024.)
class ClientShares {
 public:
  void join(uint64_t client);   // a request came
  void leave(uint64_t client);  // a request ended
  void charge(uint64_t client, uint64_t rows);
  uint64_t served(uint64_t client) const;
  size_t size() const { return clients_.size(); }

 private:
  struct Client {
    uint64_t served = 0;
    uint32_t n_requests = 0;
  };
  std::unordered_map<uint64_t, Client> clients_;
};

class WaitingQueue {
 public:
  /// A waiting request's priority rises each time this many others went before it: by one, then by two, four and so on, so
  /// that no distance between priorities keeps it waiting for long. It stays so: what waited its way to the front is not
  /// sent back by the next of higher priority.
  static constexpr uint32_t kAdmissionsPerRise = 16;

  void push(Sequence* sequence) { waiting_.push_back(sequence); }
  bool remove(const Sequence* sequence);
  /// The next to be admitted: highest priority; preempted work first; the client served least; first come.
  /// Null when nobody waits.
  Sequence* best(const ClientShares& shares) const;
  /// `sequence` goes; all others were passed over once more, and some rise.
  void take(const Sequence* sequence);
  bool empty() const { return waiting_.empty(); }
  size_t size() const { return waiting_.size(); }
  const std::vector<Sequence*>& all() const { return waiting_; }

 private:
  std::vector<Sequence*> waiting_;
};

}  // namespace turbo::sched
