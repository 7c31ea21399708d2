#include "ghosts.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace turbo::phantom {
namespace {

constexpr int kNiceness = 10;  // where a ghost and the target do meet on a core, the target goes first

void take_path(const draft::DraftNodes& tree, int32_t node, std::vector<int32_t>& out) {
  const size_t begin = out.size();
  for (int32_t at = node; at >= 0; at = tree.parents[static_cast<uint32_t>(at)]) out.push_back(tree.tokens[static_cast<uint32_t>(at)]);
  std::reverse(out.begin() + static_cast<std::ptrdiff_t>(begin), out.end());
}

std::span<const int32_t> newest(std::span<const int32_t> tokens, uint32_t n) { return tokens.last(std::min<size_t>(n, tokens.size())); }

}  // namespace

uint64_t hash_context(std::span<const int32_t> tokens) {
  uint64_t hash = 0x243F6A8885A308D3u ^ tokens.size();
  for (const int32_t token : tokens) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return hash;
}

Ghosts::Ghost::Ghost(Ghosts& owner, uint32_t i)
    : index(i), pool(owner), builder(owner.corpus_, owner.rejected_, owner.settings_.window, owner.settings_.n_policies),
      ring(owner.settings_.n_buffers) {}

Ghosts::Ghosts(draft::NgramCorpus& corpus, const draft::RejectedPairs& rejected, const GhostSettings& settings)
    : corpus_(corpus), rejected_(rejected), settings_(settings) {
  for (uint32_t i = 0; i < settings_.n_threads; ++i) ghosts_.push_back(std::make_unique<Ghost>(*this, i));
}

void Ghosts::start(const Host& host) {
  const auto* threads = host.service<turbo_host_threads>(TURBO_HOST_THREADS);
  {
    const std::lock_guard lock(mutex_);
    stopping_ = false;
  }
  invalidate();
  n_started_ = 0;
  for (; threads && n_started_ < ghosts_.size(); ++n_started_) {
    {
      const std::lock_guard lock(mutex_);
      ++n_running_;
    }
    const std::string name = "ghost-" + std::to_string(n_started_);
    if (threads->spawn(threads->ctx, name.c_str(), &run, ghosts_[n_started_].get(), nullptr) == TURBO_OK) continue;
    const std::lock_guard lock(mutex_);
    --n_running_;
    break;
  }
  n_active_ = 0;
  scale(1);
}

void Ghosts::stop() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  job_.reset();
  backlog_.clear();
  latest_.fetch_add(1, std::memory_order_relaxed);
  wake_.notify_all();
  ended_.wait(lock, [this] { return n_running_ == 0; });
  n_started_ = n_active_ = 0;
}

void Ghosts::scale(uint32_t n) {
  n = n_started_ == 0 ? 0 : std::clamp(n, 1u, n_started_);
  if (n == n_active_) return;
  for (uint32_t i = std::min(n, n_active_); i < std::max(n, n_active_); ++i) ghosts_[i]->ring.invalidate();
  n_active_ = n;
  const std::lock_guard lock(mutex_);
  working_limit_ = n;
}

void Ghosts::invalidate() {
  {
    const std::lock_guard lock(mutex_);
    job_.reset();
    latest_.fetch_add(1, std::memory_order_relaxed);
  }
  for (const auto& ghost : ghosts_) ghost->ring.invalidate();
}

void Ghosts::reset() {
  {
    const std::lock_guard lock(mutex_);
    backlog_.clear();
  }
  invalidate();
  const std::lock_guard lock(corpus_mutex_);
  corpus_.reset();
}

void Ghosts::post(std::shared_ptr<Job> job) {
  if (n_started_ == 0) return;
  const std::lock_guard lock(mutex_);
  job->id = latest_.load(std::memory_order_relaxed) + 1;
  latest_.store(job->id, std::memory_order_relaxed);
  job_ = std::move(job);
  wake_.notify_all();
}

bool Ghosts::learn_later(const std::shared_ptr<Text>& text) {
  if (n_started_ == 0) return false;
  const std::lock_guard lock(mutex_);
  if (std::find(backlog_.begin(), backlog_.end(), text) != backlog_.end()) return true;
  if (backlog_.size() >= kMostBacklog) return false;
  backlog_.push_back(text);
  wake_.notify_all();
  return true;
}

bool Ghosts::learn(Text& text, uint32_t most) {
  const std::unique_lock lock(corpus_mutex_, std::try_to_lock);
  if (lock.owns_lock()) learn_slice(text, most);
  return text.inserted.load(std::memory_order_relaxed) >= text.size();
}

void Ghosts::learn_slice(Text& text, uint32_t most) {
  const uint32_t from = text.inserted.load(std::memory_order_relaxed), size = text.size();
  if (from >= size) return;
  const uint32_t to = std::min(size, from + most), context_from = from > settings_.window ? from - settings_.window : 0;
  try {
    text.copy(context_from, to, learn_context_);
    const std::span<const int32_t> all = learn_context_;
    corpus_.extend(all.first(from - context_from), all.subspan(from - context_from));
    text.inserted.store(to, std::memory_order_relaxed);
  } catch (const std::exception&) {
    text.inserted.store(size, std::memory_order_relaxed);  // out of memory: it does without these
  }
}

bool Ghosts::sound(const draft::DraftNodes& nodes, uint32_t slots) {
  if (nodes.size() >= slots || nodes.parents.size() != nodes.size()) return false;
  for (uint32_t i = 0; i < nodes.size(); ++i)
    if (nodes.parents[i] < -1 || nodes.parents[i] >= static_cast<int32_t>(i) ||
        nodes.find(nodes.tokens[i], nodes.parents[i]) != static_cast<int32_t>(i))
      return false;
  return true;
}

void Ghosts::run(void* argument) noexcept {
  Ghost& ghost = *static_cast<Ghost*>(argument);
  Ghosts& pool = ghost.pool;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kNiceness);
  pool.work(ghost);
  const std::lock_guard lock(pool.mutex_);
  --pool.n_running_;
  pool.ended_.notify_all();
}

void Ghosts::work(Ghost& ghost) {
  uint64_t seen = 0;
  while (true) {
    std::shared_ptr<const Job> job;
    std::shared_ptr<Text> text;
    uint32_t n_active;
    {
      std::unique_lock lock(mutex_);
      const auto has_job = [&] { return ghost.index < working_limit_ && job_ && job_->id != seen; };
      wake_.wait(lock, [&] { return stopping_ || has_job() || (ghost.index == 0 && !backlog_.empty()); });
      if (stopping_) return;
      n_active = working_limit_;
      if (has_job()) {
        job = job_;
        seen = job->id;
      } else {
        text = backlog_.front();
      }
    }
    if (job) {
      try {
        build_ahead(ghost, *job, n_active);
      } catch (const std::exception&) {
        // Out of memory: the engine thread builds what it needs itself.
      }
      continue;
    }
    bool done;
    {
      const std::lock_guard lock(corpus_mutex_);
      // A reset empties the backlog before it empties the corpus, and what it dropped must not come after it.
      bool dropped;
      {
        const std::lock_guard mailbox(mutex_);
        dropped = backlog_.empty() || backlog_.front() != text;
      }
      if (!dropped) learn_slice(*text, kSlice);
      done = dropped || text->inserted.load(std::memory_order_relaxed) >= text->size();
    }
    if (!done) continue;
    const std::lock_guard lock(mutex_);
    if (!backlog_.empty() && backlog_.front() == text) backlog_.erase(backlog_.begin());
  }
}

void Ghosts::build_ahead(Ghost& ghost, const Job& job, uint32_t n_active) {
  const uint32_t per_part = n_active * settings_.n_buffers * kPack;
  ghost.plans.resize(job.parts.size());
  for (size_t p = 0; p < job.parts.size(); ++p) {
    const JobPart& part = job.parts[p];
    const Builder::Query query{part.context, part.text.get(), part.text_size, settings_.max_slots - 1, job.repair};
    ghost.builder.outcomes(query, part.tree, part.acceptance, per_part, ghost.plans[p]);
    if (superseded(job)) return;
  }
  for (uint32_t pack = 0; pack < settings_.n_buffers; ++pack) {
    Ring::Slot* slot = ghost.ring.begin_write();
    if (!slot) return;
    bool any;
    try {
      any = build_pack(ghost, job, n_active, pack, *slot);
    } catch (...) {
      ghost.ring.abandon(slot);
      throw;
    }
    if (!any || superseded(job)) return ghost.ring.abandon(slot);
    n_built_.fetch_add(slot->payload.n, std::memory_order_relaxed);
    ghost.ring.publish(slot);
  }
}

// This ghost's outcomes [pack * kPack, (pack + 1) * kPack) of every part.
bool Ghosts::build_pack(Ghost& ghost, const Job& job, uint32_t n_active, uint32_t pack, Ring::Slot& slot) {
  Pack& out = slot.payload;
  out.n = 0;
  slot.meta.job = job.id;
  slot.meta.n_sequences = static_cast<uint32_t>(job.parts.size());
  slot.meta.max_slots = settings_.max_slots;
  slot.meta.roots.clear();
  for (size_t p = 0; p < job.parts.size(); ++p) {
    for (uint32_t i = pack * kPack; i < (pack + 1) * kPack; ++i) {
      const size_t at = static_cast<size_t>(i) * n_active + ghost.index;
      if (at >= ghost.plans[p].size()) break;
      if (superseded(job)) return false;
      if (out.entries.size() == out.n) out.entries.emplace_back();
      if (!build_entry(ghost, job, job.parts[p], ghost.plans[p][at], out.entries[out.n])) continue;
      slot.meta.roots.push_back(out.entries[out.n].key.root);
      ++out.n;
    }
  }
  return out.n > 0;
}

bool Ghosts::build_entry(Ghost& ghost, const Job& job, const JobPart& part, const Outcome& outcome, Entry& entry) {
  ghost.context = part.context;
  take_path(part.tree, outcome.node, ghost.context);
  ghost.context.push_back(outcome.token);
  const auto n_new = static_cast<uint32_t>(ghost.context.size() - part.context.size());
  const Builder::Query query{newest(ghost.context, ghost.builder.context_length()), part.text.get(), part.text_size,
                             settings_.max_slots - 1, job.repair};
  ghost.builder.build(query, entry.nodes, entry.repaired);
  entry.key = {part.session, part.position + n_new, hash_context(newest(ghost.context, settings_.window)), outcome.token};
  return entry.nodes.size() > 0;
}

}  // namespace turbo::phantom
