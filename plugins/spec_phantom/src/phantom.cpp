#include "phantom.h"

#include <turbo/draft/idle_cpus.hpp>
#include <turbo/draft/ngram_options.hpp>

#include <algorithm>
#include <string>

namespace turbo::phantom {
namespace {

// A token learnt alone walks the beginnings of all n-grams that end in it, eight at once a fifth of that each.
constexpr uint32_t kLearnBatch = 8;
constexpr uint32_t kLearnAtOnce = 256;          // most that a draft waits for: a first draft without its prompt would be none
constexpr uint64_t kBuildReserveNs = 200'000;   // a build is not begun this close to the deadline

GhostSettings ghost_settings(const Host& host, uint32_t n_ghosts, uint32_t idle) {
  GhostSettings settings;
  settings.n_policies = n_ghosts;
  settings.n_threads = std::min(n_ghosts, idle);
  settings.n_buffers = draft::option_in(host, "buffers", 2, 1, 4);
  settings.window = draft::option_in(host, "max_trie_depth", 18, 2, 256);
  settings.max_slots = draft::option_in(host, "max_slots", 16, 2, 64);
  return settings;
}

}  // namespace

Phantom::Phantom(const Host& host) : Phantom(host, draft::idle_cpus(host)) {}

Phantom::Phantom(const Host& host, uint32_t idle)
    : host_(host), n_ghosts_(draft::option_in(host, "ghosts", 1, 1, 8)), corpus_(draft::ngram_settings(host)),
      settings_(ghost_settings(host, n_ghosts_, idle)), builder_(corpus_, rejected_, settings_.window, settings_.n_policies),
      ghosts_(corpus_, rejected_, settings_), scaler_(settings_.n_threads) {}

void Phantom::start() {
  ghosts_.reset();
  for (auto& [sequence, session] : sessions_) session.text->inserted.store(session.text->size(), std::memory_order_relaxed);
  ghosts_.start(host_);
  scaler_ = Scaler(ghosts_.n_threads());
  host_.gauge_set("ghosts_active", ghosts_.n_active());
  host_.log(TURBO_LOG_INFO, ghosts_.n_threads() == 0
                                ? "the target computes on every CPU: drafts are built when they are wanted"
                                : std::to_string(ghosts_.n_threads()) + " of " + std::to_string(n_ghosts_) + " ghosts, on CPUs that the target leaves idle");
}

void Phantom::stop() {
  if (ghosts_.n_threads() > 0)
    host_.log(TURBO_LOG_DEBUG, std::to_string(rounds_) + " drafts wanted, " + std::to_string(hits_) + " were ready, " +
                                   std::to_string(ghosts_.n_built()) + " built ahead");
  ghosts_.stop();
}

void Phantom::needs(turbo_drafter_needs& needs) {
  needs.max_slots = settings_.max_slots;
  needs.wants_prompt = 1;
}

void Phantom::open(uint32_t sequence) {
  Session session;
  session.id = next_session_++;
  sessions_.insert_or_assign(sequence, std::move(session));
}

std::span<const int32_t> Phantom::context(const Session& session) const {
  const std::span<const int32_t> recent = session.recent;
  return recent.last(std::min<size_t>(recent.size(), builder_.context_length()));
}

// ---- what the target said ----

void Phantom::observe(uint32_t sequence, const Observation& observation) {
  const auto found = sessions_.find(sequence);
  if (found == sessions_.end()) throw Failure(TURBO_NOT_FOUND, "sequence " + std::to_string(sequence) + " is not open");
  Session& session = found->second;
  const std::span<const int32_t> fresh = observation.tokens();
  if (fresh.empty()) return;
  if (session.drafted && observation.position() == session.position && !session.recent.empty()) {
    learn_from(session, fresh, observation.n_accepted());
    scaler_.emitted(static_cast<uint32_t>(fresh.size()), host_.now_ns());
  }
  session.drafted = false;
  hear(session, observation);
  if (ghosts_.n_threads() > 0) teach(session, false);
}

void Phantom::learn_from(Session& session, std::span<const int32_t> fresh, uint32_t n_accepted) {
  const draft::DraftNodes& draft = session.draft;
  rejected_.learn(session.recent.back(), draft.tokens, draft.parents, fresh, n_accepted);
  uint32_t n_repaired = 0, n_correct = 0;
  for (const uint8_t repaired : session.repaired) n_repaired += repaired;
  const draft::AcceptedPath held = draft::accepted_path(draft, fresh, n_accepted, [&](int32_t node) { n_correct += session.repaired[static_cast<uint32_t>(node)]; });
  repair_.record(n_repaired, n_correct);
  if (n_repaired > 0) rejected_.set_age_limit(repair_.age_limit());
  session.acceptance = draft::running_acceptance(session.acceptance, draft, held, 0.2);
}

void Phantom::hear(Session& session, const Observation& observation) {
  if (observation.position() != session.position) {
    // Tokens are missing: what was heard before is no context of these.
    session.text = std::make_shared<Text>();
    session.recent.clear();
    session.id = next_session_++;
  }
  const std::span<const int32_t> fresh = observation.tokens();
  session.text->append(fresh);
  session.position = observation.position() + fresh.size();
  const size_t length = builder_.context_length();
  const std::span<const int32_t> kept = fresh.last(std::min(fresh.size(), length));
  session.recent.insert(session.recent.end(), kept.begin(), kept.end());
  if (session.recent.size() > 4 * length)
    session.recent.erase(session.recent.begin(), session.recent.end() - static_cast<std::ptrdiff_t>(length));
}

// By a ghost. Without one by this thread, when a draft is wanted or the text has ended: one whose drafts do not pay costs nothing
// while it is made.
void Phantom::teach(Session& session, bool last) {
  const uint32_t size = session.text->size(), inserted = std::min(size, session.text->inserted.load(std::memory_order_relaxed)), waiting = size - inserted;
  const uint32_t batch = last || inserted == 0 ? 1 : kLearnBatch;
  if (waiting < batch || ghosts_.learn_later(session.text)) return;
  ghosts_.learn(*session.text, last ? waiting : kLearnAtOnce);
}

void Phantom::close(uint32_t sequence) {
  const auto found = sessions_.find(sequence);
  if (found == sessions_.end()) return;
  teach(found->second, true);
  sessions_.erase(found);
}

// ---- drafts ----

bool Phantom::poll(Proposals proposals) {
  asks_.clear();
  keys_.clear();
  for (uint32_t i = 0; i < proposals.size(); ++i) {
    turbo_proposal& proposal = proposals[i];
    proposal.n = 0;
    const auto found = sessions_.find(proposal.sequence);
    if (found == sessions_.end() || proposal.max_slots < 2 || found->second.recent.empty()) continue;
    Session& session = found->second;
    session.drafted = false;
    const std::span<const int32_t> recent = session.recent;
    const std::span<const int32_t> window = recent.last(std::min<size_t>(recent.size(), settings_.window));
    asks_.push_back({&session, &proposal});
    keys_.push_back({session.id, session.position, hash_context(window), recent.back()});
  }
  if (asks_.empty()) return true;
  if (ghosts_.n_threads() == 0)
    for (const Ask& ask : asks_) teach(*ask.session, false);
  uint32_t hits = 0;
  ghosts_.take(keys_, [&](size_t i) { return std::min(asks_[i].proposal->max_slots, settings_.max_slots); },
               [&](size_t i, const draft::DraftNodes& nodes, const std::vector<uint8_t>& repaired) {
                 if (asks_[i].ready) return;
                 asks_[i].ready = true;
                 asks_[i].session->draft = nodes;
                 asks_[i].session->repaired = repaired;
                 ++hits;
               });
  bool any = false;
  for (Ask& ask : asks_) {
    if (!ask.ready) build_now(ask);
    answer(ask);
    any |= ask.session->drafted;
  }
  count(hits, static_cast<uint32_t>(asks_.size()) - hits);
  if (any) scaler_.begin_round(host_.now_ns());
  if (scaler_.active() != ghosts_.n_active() && ghosts_.n_threads() > 0) {
    ghosts_.scale(scaler_.active());
    host_.gauge_set("ghosts_active", ghosts_.n_active());
  }
  post_job();
  return true;
}

void Phantom::build_now(Ask& ask) {
  Session& session = *ask.session;
  session.draft.clear();
  session.repaired.clear();
  const uint64_t deadline = ask.proposal->deadline_ns;
  if (deadline != 0 && host_.now_ns() + kBuildReserveNs > deadline) return;  // a step without a draft beats a late one
  const uint32_t slots = std::min(ask.proposal->max_slots, settings_.max_slots);
  const bool repair = repair_.enabled() && !rejected_.empty();
  builder_.build({context(session), session.text.get(), session.text->size(), slots - 1, repair}, session.draft, session.repaired);
}

// The first nodes are the best tree of that many, so a draft serves every smaller number of slots.
void Phantom::answer(Ask& ask) {
  draft::DraftNodes& draft = ask.session->draft;
  DraftTree tree(*ask.proposal);
  for (uint32_t i = 0; i < draft.size() && !tree.full(); ++i) tree.add(draft.tokens[i], draft.parents[i], draft.scores[i]);
  draft.tokens.resize(tree.size());
  draft.parents.resize(tree.size());
  draft.scores.resize(tree.size());
  ask.session->repaired.resize(tree.size());
  ask.session->drafted = tree.size() > 0;
}

void Phantom::post_job() {
  if (ghosts_.n_threads() == 0) return;
  auto job = std::make_shared<Job>();
  job->repair = repair_.enabled() && !rejected_.empty();
  for (const Ask& ask : asks_) {
    if (job->parts.size() == Ghosts::kMostParts) break;
    const Session& session = *ask.session;
    const std::span<const int32_t> newest = context(session);
    job->parts.push_back({session.id, session.position, session.text, session.text->size(), {newest.begin(), newest.end()},
                          session.draft, session.acceptance});
  }
  ghosts_.post(std::move(job));
}

void Phantom::cancel() {
  for (auto& [sequence, session] : sessions_) session.drafted = false;
}

void Phantom::count(uint32_t hits, uint32_t misses) {
  rounds_ += hits + misses;
  hits_ += hits;
  misses_ += misses;
  host_.counter_add("rounds", hits + misses);
  if (hits > 0) host_.counter_add("hits", hits);
  if (misses > 0) host_.counter_add("misses", misses);
  if (const uint64_t built = ghosts_.n_built(); built > built_told_) {
    host_.counter_add("built_ahead", static_cast<double>(built - built_told_));
    built_told_ = built;
  }
  host_.gauge_set("filter_pairs", rejected_.size());
}

}  // namespace turbo::phantom
