#include <turbo/fake/draft_model.hpp>
#include <turbo/plugin.hpp>

namespace turbo::fake {
namespace {

// The text, then the nodes down to `node` (-1: none).
std::vector<int32_t> path_to(const DraftModel::Sequence& sequence, int32_t node) {
  std::vector<int32_t> below;
  for (int32_t at = node; at >= 0; at = sequence.parents[static_cast<size_t>(at)]) below.push_back(sequence.nodes[static_cast<size_t>(at)]);
  std::vector<int32_t> path = sequence.text;
  path.insert(path.end(), below.rbegin(), below.rend());
  return path;
}

}  // namespace

turbo_status DraftModel::open(const turbo_draft_source& source, turbo_draft_model** model, turbo_draft_facts* out, turbo_error* error) {
  if (!refusal.empty()) return fill_error(error, TURBO_INVALID_ARGUMENT, refusal.c_str());
  opened.push_back(source.path ? source.path : "");
  opened_layers = source.n_layers;
  ++live;
  *model = reinterpret_cast<turbo_draft_model*>(this);
  detail::fill_out(out, [&](turbo_draft_facts& given) { given = facts; });
  return TURBO_OK;
}

std::string DraftModel::find_fault(const turbo_draft_group& group) const {
  const auto found = sequences.find(group.sequence);
  const Sequence none, &sequence = found == sequences.end() ? none : found->second;
  if (group.n_tokens + group.n_nodes == 0 || !group.tokens) return "an empty group";
  if (group.n_tokens > 0 && !sequence.nodes.empty()) return "tokens behind nodes";
  if (sequence.text.size() + group.n_tokens == 0) return "nodes without a text";
  if (sequence.text.size() + group.n_tokens > facts.context) return "a text beyond the context";
  if (sequence.nodes.size() + group.n_nodes > facts.max_nodes) return "too many nodes";
  for (uint32_t i = 0; i < group.n_tokens + group.n_nodes; ++i)
    if (group.tokens[i] < 0 || static_cast<uint32_t>(group.tokens[i]) >= facts.shared_vocab) return "token " + std::to_string(group.tokens[i]) + " outside the shared vocabulary";
  for (uint32_t i = 0; i < group.n_nodes; ++i)
    if (group.parents[i] < -1 || group.parents[i] >= static_cast<int64_t>(sequence.nodes.size() + i)) return "a parent that does not exist";
  return "";
}

void DraftModel::add_row(const std::vector<int32_t>& path) {
  for (uint32_t token = 0; token < facts.vocab_size; ++token) logits_.push_back(logit ? logit(path, static_cast<int32_t>(token)) : 0.0f);
  ++rows;
}

turbo_status DraftModel::run(turbo_draft_group* groups, uint32_t n, turbo_view* logits, turbo_error* error) {
  for (uint32_t i = 0; i < n; ++i)
    if (const std::string fault = find_fault(detail::element(groups, i)); !fault.empty()) return fill_error(error, TURBO_INVALID_ARGUMENT, fault.c_str());
  if (fail_runs > 0) return --fail_runs, fill_error(error, TURBO_INTERNAL, "scripted failure");
  logits_.clear();
  ++runs;
  group_counts.push_back(n);
  uint32_t row = 0;
  for (uint32_t i = 0; i < n; ++i) {
    turbo_draft_group& group = detail::element(groups, i);
    group.first_logits = -1;
    if (full > 0) {
      --full;
      continue;
    }
    Sequence& sequence = sequences[group.sequence];
    group.first_logits = static_cast<int32_t>(row);
    sequence.text.insert(sequence.text.end(), group.tokens, group.tokens + group.n_tokens);
    if (group.n_tokens > 0) add_row(sequence.text), ++row;
    for (uint32_t node = 0; node < group.n_nodes; ++node, ++row) {
      sequence.nodes.push_back(group.tokens[group.n_tokens + node]);
      sequence.parents.push_back(group.parents[node]);
      add_row(path_to(sequence, static_cast<int32_t>(sequence.nodes.size()) - 1));
    }
  }
  if (row > facts.max_logit_rows) return fill_error(error, TURBO_INVALID_ARGUMENT, "too many rows of logits");
  turbo_view view{};
  view.struct_size = sizeof view;
  view.type = TURBO_TYPE_F32;
  view.data = logits_.data();
  view.bytes = logits_.size() * sizeof(float);
  view.rank = 2;
  view.memory = TURBO_MEMORY_HOST;
  view.device = -1;
  view.shape[0] = row;
  view.shape[1] = facts.vocab_size;
  view.stride[0] = facts.vocab_size * sizeof(float);
  view.stride[1] = sizeof(float);
  *logits = view;
  return TURBO_OK;
}

turbo_status DraftModel::keep(uint32_t id, const uint32_t* nodes, uint32_t n, turbo_error* error) {
  const auto found = sequences.find(id);
  if (found == sequences.end()) return fill_error(error, TURBO_NOT_FOUND, "no such sequence");
  Sequence& sequence = found->second;
  int32_t parent = -1;
  for (uint32_t i = 0; i < n; ++i) {
    if (nodes[i] >= sequence.nodes.size() || sequence.parents[nodes[i]] != parent) return fill_error(error, TURBO_INVALID_ARGUMENT, "kept nodes are no path");
    parent = static_cast<int32_t>(nodes[i]);
  }
  for (uint32_t i = 0; i < n; ++i) sequence.text.push_back(sequence.nodes[nodes[i]]);
  sequence.nodes.clear();
  sequence.parents.clear();
  return TURBO_OK;
}

}  // namespace turbo::fake
