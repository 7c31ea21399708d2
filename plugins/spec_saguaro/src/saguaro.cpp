#include "saguaro.h"

#include <turbo/draft/idle_cpus.hpp>
#include <turbo/draft/ngram_options.hpp>

namespace turbo::saguaro {

Saguaro::Saguaro(const Host& host) : Saguaro(host, draft::idle_cpus(host)) {}

Saguaro::Saguaro(const Host& host, uint32_t idle)
    : host_(host), inner_(host),
      cache_(draft::option_in(host, "entries", 1024, 1, 1'000'000), draft::option_in(host, "bytes", 4 << 20, 1024, 1 << 30)), idle_(idle) {
  if (inner_.size() != 1)
    throw Failure(TURBO_INVALID_ARGUMENT, "the outcome cache wraps one drafter, but there are " + std::to_string(inner_.size()),
                  "put them into one with drafter: { name: first, over: [...], outcome_cache: true }");
  settings_.guesses = draft::option_in(host, "guesses", 16, 1, 256);
  settings_.miss_exponent = host.option("miss_exponent", 1.0);
  if (!(settings_.miss_exponent >= 0.05 && settings_.miss_exponent <= 20))
    throw Failure(TURBO_INVALID_ARGUMENT, "option 'miss_exponent': it is not in 0.05..20");
  settings_.max_slots = inner_.needs().max_slots;
  settings_.vocabulary = inner_.vocabulary();
}

void Saguaro::start() {
  const turbo_drafter& table = inner_.table(0);
  std::string why;
  if (!TURBO_HAS(&table, ahead) || !table.ahead)
    why = "drafter '" + inner_.name(0) + "' cannot draft for a text that may come to be" +
          (inner_.needs().runs_programs ? ": it runs on the target's device" : "");
  else if (idle_ == 0)
    why = "the target computes on every CPU (compute.threads below their number leaves one idle)";
  if (why.empty()) {
    foresight_ = std::make_unique<Foresight>(host_, table, inner_.self(0), settings_);
    why = foresight_->start();
    if (why.empty()) return;
    foresight_.reset();
  }
  host_.log(TURBO_LOG_WARN, "drafts of '" + inner_.name(0) + "' go through unchanged, none is made ahead: " + why);
}

void Saguaro::stop() {
  if (!foresight_) return;
  tell();
  host_.log(TURBO_LOG_DEBUG, std::to_string(cache_.hits()) + " hits, " + std::to_string(cache_.misses()) + " misses, " +
                                 std::to_string(foresight_->n_built()) + " drafts made ahead");
  foresight_->stop();
}

void Saguaro::needs(turbo_drafter_needs& needs) {
  const uint32_t struct_size = needs.struct_size;
  needs = inner_.needs();
  needs.struct_size = struct_size;
  // Moments are told apart by all of their tokens, so those of the prompt are wanted too where drafts are made ahead.
  if (works()) needs.wants_prompt = 1;
}

void Saguaro::open(uint32_t sequence) {
  inner_.open(sequence);
  if (!works()) return;
  Session session;
  session.now.session = next_session_++;
  by_id_[session.now.session] = sequence;
  sessions_.insert_or_assign(sequence, std::move(session));
}

void Saguaro::close(uint32_t sequence) {
  inner_.close(sequence);
  const auto found = sessions_.find(sequence);
  if (found == sessions_.end()) return;
  cache_.close(found->second.now.session);
  by_id_.erase(found->second.now.session);
  sessions_.erase(found);
  tell();
}

void Saguaro::cancel() {
  inner_.cancel();
  for (auto& [sequence, session] : sessions_) session.drafted = false;
}

// ---- what the target said ----

void Saguaro::observe(uint32_t sequence, const Observation& observation) {
  inner_.observe(sequence, observation);
  const auto found = sessions_.find(sequence);
  if (found == sessions_.end() || observation.tokens().empty()) return;
  Session& session = found->second;
  learn_from(session, observation);
  hear(session, observation);
  cache_.committed(session.now);
}

void Saguaro::learn_from(Session& session, const Observation& observation) {
  if (session.drafted && observation.position() == session.now.length) {
    const draft::AcceptedPath held = draft::accepted_path(session.draft, observation.tokens(), observation.n_accepted());
    session.acceptance = draft::running_acceptance(session.acceptance, session.draft, held, 0.1);
  }
  session.drafted = false;
}

void Saguaro::hear(Session& session, const Observation& observation) {
  if (observation.position() != session.now.length) {
    // Tokens are missing: this is another text from here on, and what was made ahead is of the old one.
    cache_.close(session.now.session);
    const auto old = by_id_.extract(session.now.session);
    session.recent.clear();
    session.now = {next_session_++, observation.position(), 0};
    by_id_[session.now.session] = old.mapped();
  }
  const std::span<const int32_t> fresh = observation.tokens();
  for (const int32_t token : fresh) session.now.hash = draft::hash_next(session.now.hash, token);
  session.now.length += fresh.size();
  const std::span<const int32_t> kept = fresh.last(std::min<size_t>(fresh.size(), TURBO_AHEAD_TOKENS));
  session.recent.insert(session.recent.end(), kept.begin(), kept.end());
  if (session.recent.size() > 4 * TURBO_AHEAD_TOKENS)
    session.recent.erase(session.recent.begin(), session.recent.end() - TURBO_AHEAD_TOKENS);
}

// ---- drafts ----

bool Saguaro::poll(Proposals proposals) {
  if (works()) {
    if (const char* why = foresight_->check()) {
      broken_ = true;
      cache_.clear();
      sessions_.clear();
      by_id_.clear();
      host_.log(TURBO_LOG_WARN, "drafter '" + inner_.name(0) + "' drafts no longer ahead: " + why);
    } else {
      foresight_->collect([&](const Guess& guess) {
        const auto sequence = by_id_.find(guess.key.session);
        if (sequence == by_id_.end()) return;
        const draft::OutcomeKey& now = sessions_.at(sequence->second).now;
        if (guess.key.length > now.length || guess.key == now) cache_.insert(guess.key, guess.tree);
      });
    }
  }
  answer(proposals);
  if (works()) {
    post();
    tell();
  }
  return true;
}

void Saguaro::answer(Proposals proposals) {
  asks_.assign(proposals.size(), {});
  misses_.clear();
  moments_.clear();
  for (uint32_t i = 0; i < proposals.size(); ++i) {
    const turbo_proposal& proposal = proposals[i];
    asks_[i] = {proposal.sequence, proposal.max_slots, proposal.deadline_ns, {}};
    const auto found = works() ? sessions_.find(proposal.sequence) : sessions_.end();
    if (found != sessions_.end() && proposal.max_slots >= 2 && !found->second.recent.empty()) {
      moments_.push_back({i, &found->second});
      if (const draft::DraftNodes* ready = cache_.find(found->second.now)) {
        asks_[i].tree = *ready;
        continue;
      }
    }
    misses_.push_back(&asks_[i]);
  }
  if (!misses_.empty()) inner_.ask(0, misses_);
  for (uint32_t i = 0; i < proposals.size(); ++i) {
    DraftTree draft(proposals[i]);
    draft::DraftNodes& tree = asks_[i].tree;
    // The first nodes are the best tree of that many, so a draft serves every smaller number of slots.
    for (uint32_t k = 0; k < tree.size() && !draft.full(); ++k) draft.add(tree.tokens[k], tree.parents[k], k < tree.scores.size() ? tree.scores[k] : 0);
    tree.tokens.resize(draft.size());
    tree.parents.resize(draft.size());
    tree.scores.resize(draft.size());
  }
  for (const auto& [i, session] : moments_) {
    session->draft = asks_[i].tree;
    session->drafted = session->draft.size() > 0;
  }
}

void Saguaro::post() {
  if (moments_.empty()) return;
  const auto n = static_cast<uint32_t>(std::min<size_t>(moments_.size(), Foresight::kMostMoments));
  foresight_->post(n, [&](uint32_t i, Moment& moment) {
    const auto& [ask, session] = moments_[i];
    moment.key = session->now;
    moment.sequence = asks_[ask].sequence;
    moment.acceptance = session->acceptance;
    const std::span<const int32_t> recent = session->recent;
    const std::span<const int32_t> newest = recent.last(std::min<size_t>(recent.size(), TURBO_AHEAD_TOKENS));
    moment.recent.assign(newest.begin(), newest.end());
    moment.tree.tokens = session->draft.tokens;
    moment.tree.parents = session->draft.parents;
  });
}

void Saguaro::tell() {
  const auto add = [&](const char* name, uint64_t now, uint64_t& before) {
    if (now > before) host_.counter_add(name, static_cast<double>(now - before));
    before = now;
  };
  add("hits", cache_.hits(), told_.hits);
  add("misses", cache_.misses(), told_.misses);
  add("wasted", cache_.wasted(), told_.wasted);
  add("built_ahead", foresight_->n_built(), told_.built);
  add("ahead_faults", foresight_->n_faults(), told_.faults);
  host_.gauge_set("entries", static_cast<double>(cache_.size()));
  host_.gauge_set("bytes", static_cast<double>(cache_.bytes()));
}

}  // namespace turbo::saguaro
