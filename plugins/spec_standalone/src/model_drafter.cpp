#include "model_drafter.h"

#include <algorithm>

#include "token_map.h"

namespace turbo::spec_standalone {
namespace {

constexpr size_t kCatchUp = 512;  // tokens that are read for one draft; a longer text is read in steps without one

}  // namespace

ModelDrafter::ModelDrafter(const Host& host, const DraftShape& shape, std::string path, uint32_t n_layers,
                           const std::string& token_map)
    : host_(host), shape_(shape), service_(host.service<turbo_host_program>(TURBO_HOST_PROGRAM_DRAFT)) {
  if (!service_ || !TURBO_HAS(service_, model_drop) || !service_->model_open)
    throw Failure(TURBO_UNSUPPORTED, "the host runs no draft models");
  const turbo_draft_source source{sizeof source, n_layers, path.empty() ? nullptr : path.c_str()};
  facts_.struct_size = sizeof facts_;
  must(service_->model_open(service_->ctx, &source, &model_, &facts_, &error_));
  try {
    if (shape_.branches > facts_.max_logit_rows || shape_.steps * shape_.branches > facts_.max_nodes)
      throw Failure(TURBO_INVALID_ARGUMENT, "steps " + std::to_string(shape_.steps) + " with topk " + std::to_string(shape_.branches) + ": at most " +
                                                std::to_string(facts_.max_nodes) + " nodes can be run for a draft",
                    "lower drafter.steps or drafter.topk");
    if (!token_map.empty()) allowed_ = read_token_map(token_map, std::min(facts_.shared_vocab, facts_.vocab_size));
  } catch (...) {
    service_->model_close(service_->ctx, model_);
    throw;
  }
}

ModelDrafter::~ModelDrafter() { service_->model_close(service_->ctx, model_); }

void ModelDrafter::must(turbo_status status) {
  if (status != TURBO_OK) throw Failure(status, error_.message, error_.hint);
}

void ModelDrafter::needs(turbo_drafter_needs& needs) const {
  const uint64_t t = shape_.branches, pool = 1 + t + (shape_.steps - 1) * t * t;
  needs.max_slots = static_cast<uint32_t>(std::min<uint64_t>(64, pool));
  needs.runs_programs = 1;
  needs.wants_prompt = 1;
}

void ModelDrafter::open(uint32_t sequence) { sessions_[sequence] = {}; }

void ModelDrafter::close(uint32_t sequence) {
  if (sessions_.erase(sequence)) service_->model_drop(service_->ctx, model_, sequence);
}

// Its cache goes back; the target goes on alone.
void ModelDrafter::stop_drafting(uint32_t sequence, Session& session) {
  service_->model_drop(service_->ctx, model_, sequence);
  session = {};
  session.done = true;
}

void ModelDrafter::observe(uint32_t sequence, const Observation& observation) {
  const auto found = sessions_.find(sequence);
  if (found == sessions_.end() || observation.tokens().empty() || found->second.done) return;
  Session& session = found->second;
  if (observation.position() != session.n_seen)
    throw Failure(TURBO_INTERNAL, "standalone: sequence " + std::to_string(sequence) + " goes on at position " + std::to_string(observation.position()) +
                                      ", expected " + std::to_string(session.n_seen));
  session.n_seen += observation.tokens().size();
  for (const int32_t token : observation.tokens())
    if (token < 0 || static_cast<uint32_t>(token) >= facts_.shared_vocab) return stop_drafting(sequence, session);
  if (session.n_seen > facts_.context) return stop_drafting(sequence, session);
  session.pending.insert(session.pending.end(), observation.tokens().begin(), observation.tokens().end());
  reconcile(sequence, session);
}

// Drafted nodes that came to be are text now; whatever else was drafted is forgotten. The newest token stays pending even
// if it ran as a node that was not offered: the next draft begins with its logits.
void ModelDrafter::reconcile(uint32_t sequence, Session& session) {
  if (session.nodes.empty()) return;
  std::vector<uint32_t> path;
  int32_t parent = -1;
  for (size_t i = 0; i + 1 < session.pending.size(); ++i) {
    const int32_t token = session.pending[i];
    size_t node = 0;
    while (node < session.nodes.size() && (session.parents[node] != parent || session.nodes[node] != token)) ++node;
    if (node == session.nodes.size()) break;
    path.push_back(static_cast<uint32_t>(node));
    parent = static_cast<int32_t>(node);
  }
  must(service_->model_keep(service_->ctx, model_, sequence, path.data(), static_cast<uint32_t>(path.size()), &error_));
  session.pending.erase(session.pending.begin(), session.pending.begin() + static_cast<ptrdiff_t>(path.size()));
  session.nodes.clear();
  session.parents.clear();
}

// A part of a long text. Nothing is read before a draft is wanted: where drafts do not pay, the model costs nothing.
void ModelDrafter::catch_up(uint32_t sequence, Session& session) {
  const auto n = static_cast<uint32_t>(kCatchUp);
  turbo_draft_group group{sizeof group, sequence, n, 0, session.pending.data(), nullptr, -1, 0};
  turbo_view logits{};
  logits.struct_size = sizeof logits;
  must(service_->model_run(service_->ctx, model_, &group, 1, &logits, &error_));
  if (group.first_logits < 0) return;  // no room: the tokens wait
  session.pending.erase(session.pending.begin(), session.pending.begin() + n);
}

void ModelDrafter::propose(Proposals proposals) {
  std::vector<Draft> drafts;
  drafts.reserve(proposals.size());
  for (uint32_t i = 0; i < proposals.size(); ++i) {
    turbo_proposal& proposal = proposals[i];
    proposal.n = 0;
    const auto found = sessions_.find(proposal.sequence);
    if (found == sessions_.end() || found->second.done || found->second.pending.empty() || proposal.max_slots < 2) continue;
    Session& session = found->second;
    reconcile(proposal.sequence, session);
    if (session.pending.size() > kCatchUp) {
      catch_up(proposal.sequence, session);
      continue;
    }
    // The node of step i lies at position n_seen - 1 + i.
    const uint64_t room = facts_.context - session.n_seen + 1;
    Draft& draft = drafts.emplace_back(Draft{&proposal, &session, 0, {}, {}});
    draft.steps = static_cast<uint32_t>(std::min<uint64_t>({shape_.steps, proposal.max_slots - 1, room}));
    draft.pool.begin(shape_.branches);
  }
  // As many at once as a run has rows of logits.
  const size_t at_once = facts_.max_logit_rows / shape_.branches;
  for (size_t first = 0; first < drafts.size(); first += at_once) {
    std::vector<Draft*> some;
    for (size_t i = first; i < std::min(drafts.size(), first + at_once); ++i) some.push_back(&drafts[i]);
    first_level(some);
    while (!some.empty()) next_level(some);
  }
  for (Draft& draft : drafts) answer(draft);
}

void ModelDrafter::run(std::vector<turbo_draft_group>& groups, turbo_view& logits) {
  logits = {};
  logits.struct_size = sizeof logits;
  must(service_->model_run(service_->ctx, model_, groups.data(), static_cast<uint32_t>(groups.size()), &logits, &error_));
}

void ModelDrafter::take_logits(Draft& draft, const turbo_view& logits, uint32_t row, int32_t parent) {
  const auto* values = reinterpret_cast<const float*>(static_cast<const char*>(logits.data) + row * logits.stride[0]);
  // Rows beyond the shared vocabulary mean nothing to the target.
  best_tokens({values, std::min(facts_.shared_vocab, facts_.vocab_size)}, allowed_, shape_.branches, candidates_);
  draft.pool.expand(parent, candidates_);
}

// The tokens that the draft model has not seen, and what follows them. Drafts that cannot go on leave the list.
void ModelDrafter::first_level(std::vector<Draft*>& drafts) {
  std::vector<turbo_draft_group> groups;
  for (const Draft* draft : drafts) {
    const std::vector<int32_t>& pending = draft->session->pending;
    groups.push_back({sizeof(turbo_draft_group), draft->proposal->sequence, static_cast<uint32_t>(pending.size()), 0, pending.data(), nullptr, -1, 0});
  }
  turbo_view logits;
  run(groups, logits);
  for (size_t i = 0; i < drafts.size(); ++i) {
    Draft& draft = *drafts[i];
    if (groups[i].first_logits < 0) {
      draft.steps = 0;
      continue;
    }
    draft.session->pending.clear();
    take_logits(draft, logits, static_cast<uint32_t>(groups[i].first_logits), -1);
    draft.pool.close_level();
    --draft.steps;
  }
  std::erase_if(drafts, [](const Draft* draft) { return draft->steps == 0 || draft->pool.live().empty(); });
}

// One run of all live nodes.
void ModelDrafter::next_level(std::vector<Draft*>& drafts) {
  std::vector<turbo_draft_group> groups;
  tokens_.resize(std::max(tokens_.size(), drafts.size()));
  parents_.resize(tokens_.size());
  for (size_t i = 0; i < drafts.size(); ++i) {
    Draft& draft = *drafts[i];
    tokens_[i].clear();
    parents_[i].clear();
    draft.ran = draft.pool.live();
    for (const int32_t index : draft.ran) {
      const DraftPool::Node& node = draft.pool.node(index);
      tokens_[i].push_back(node.token);
      parents_[i].push_back(node.parent < 0 ? -1 : draft.pool.node(node.parent).run_as);
    }
    groups.push_back({sizeof(turbo_draft_group), draft.proposal->sequence, 0, static_cast<uint32_t>(tokens_[i].size()), tokens_[i].data(), parents_[i].data(), -1, 0});
  }
  turbo_view logits;
  run(groups, logits);
  for (size_t i = 0; i < drafts.size(); ++i) {
    Draft& draft = *drafts[i];
    if (groups[i].first_logits < 0) {
      draft.steps = 0;
      continue;
    }
    Session& session = *draft.session;
    for (size_t j = 0; j < draft.ran.size(); ++j) {
      draft.pool.node(draft.ran[j]).run_as = static_cast<int32_t>(session.nodes.size());
      session.nodes.push_back(tokens_[i][j]);
      session.parents.push_back(parents_[i][j]);
      take_logits(draft, logits, static_cast<uint32_t>(groups[i].first_logits) + static_cast<uint32_t>(j), draft.ran[j]);
    }
    draft.pool.close_level();
    --draft.steps;
  }
  std::erase_if(drafts, [](const Draft* draft) { return draft->steps == 0 || draft->pool.live().empty(); });
}

void ModelDrafter::answer(Draft& draft) {
  DraftTree tree(*draft.proposal);
  std::unordered_map<int32_t, int32_t> place;  // pool index -> node of the proposal
  for (const int32_t index : draft.pool.best(tree.capacity())) {
    const DraftPool::Node& node = draft.pool.node(index);
    int32_t parent = DraftTree::kRoot;
    if (node.parent >= 0) parent = place.at(node.parent);
    if (const auto added = tree.add(node.token, parent, node.score)) place[index] = *added;
  }
}

}  // namespace turbo::spec_standalone
