#include "sched/queue.h"

#include <algorithm>
#include <optional>

namespace turbo::sched {
namespace {

constexpr int32_t kMostRise = 256;

}  // namespace

void ClientShares::join(uint64_t client) {
  std::optional<uint64_t> least;
  for (const auto& [id, other] : clients_)
    if (other.n_requests > 0) least = std::min(least.value_or(other.served), other.served);
  // Forget clients whose lead nobody would notice.
  std::erase_if(clients_, [&](const auto& entry) {
    return entry.second.n_requests == 0 && (!least || entry.second.served <= *least);
  });
  Client& joined = clients_[client];
  if (joined.n_requests == 0 && least) joined.served = std::max(joined.served, *least);
  ++joined.n_requests;
}

void ClientShares::leave(uint64_t client) {
  if (const auto found = clients_.find(client); found != clients_.end() && found->second.n_requests > 0) --found->second.n_requests;
}

void ClientShares::charge(uint64_t client, uint64_t rows) {
  if (const auto found = clients_.find(client); found != clients_.end()) found->second.served += rows;
}

uint64_t ClientShares::served(uint64_t client) const {
  const auto found = clients_.find(client);
  return found == clients_.end() ? 0 : found->second.served;
}

bool WaitingQueue::remove(const Sequence* sequence) {
  const auto found = std::find(waiting_.begin(), waiting_.end(), sequence);
  if (found == waiting_.end()) return false;
  waiting_.erase(found);
  return true;
}

Sequence* WaitingQueue::best(const ClientShares& shares) const {
  Sequence* best = nullptr;
  const auto before = [&](const Sequence& a, const Sequence& b) {
    if (a.priority != b.priority) return a.priority > b.priority;
    if (a.preempted != b.preempted) return a.preempted;
    const uint64_t served_a = shares.served(a.client), served_b = shares.served(b.client);
    if (!a.preempted && served_a != served_b) return served_a < served_b;
    return a.id < b.id;
  };
  for (Sequence* sequence : waiting_)
    if (!best || before(*sequence, *best)) best = sequence;
  return best;
}

void WaitingQueue::take(const Sequence* sequence) {
  remove(sequence);
  for (Sequence* other : waiting_) {
    if (++other->passed_over < kAdmissionsPerRise) continue;
    other->passed_over = 0;
    other->priority += other->next_rise;
    other->next_rise = std::min(2 * other->next_rise, kMostRise);
  }
}

}  // namespace turbo::sched
