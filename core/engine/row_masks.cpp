#include "engine/row_masks.h"

#include <algorithm>

namespace turbo::engine {

bool RowMasks::restricts(const Request& request, uint32_t n_generated, uint32_t depth) {
  return request.mask || !request.banned_tokens.empty() ||
         (!request.end_tokens.empty() && n_generated + depth < request.min_tokens);
}

// The first restricted row of a step opens all others.
void RowMasks::open_all() {
  if (table_->masked) return;
  std::fill_n(table_->mask, size_t{table_->n_logit_rows} * table_->mask_words, ~0u);
  table_->masked = 1;
}

void RowMasks::ban(std::span<uint32_t> words, std::span<const int32_t> ids) const {
  for (const int32_t id : ids)
    if (id >= 0 && static_cast<uint32_t>(id) < vocab_) words[id / 32] &= ~(1u << (id % 32));
}

Status RowMasks::fill(const Request& request, uint32_t n_generated, std::span<const int32_t> path, std::span<uint32_t> words) {
  if (n_generated + path.size() < request.min_tokens) ban(words, request.end_tokens);
  ban(words, request.banned_tokens);
  return request.mask ? request.mask->restrict_row(path, words) : Status::ok();
}

Status RowMasks::add(const Request& request, uint32_t n_generated, uint32_t row_of_root, const spec::DraftTree* draft,
                     std::span<const uint32_t> row_of_node) {
  if (!restricts(request, n_generated, 0)) return Status::ok();
  open_all();
  TURBO_RETURN_IF_ERROR(fill(request, n_generated, {}, row(row_of_root)));
  if (!draft) return Status::ok();
  reachable_.assign(draft->size(), 0);
  for (uint32_t node = 0; node < draft->size(); ++node) {
    const int32_t parent = draft->parents[node], token = draft->tokens[node];
    if (parent >= 0 && !reachable_[parent]) continue;
    const std::span<uint32_t> above = row(parent < 0 ? row_of_root : row_of_node[parent]);
    if (!(above[token / 32] >> (token % 32) & 1)) continue;
    reachable_[node] = 1;
    path_.clear();
    for (const uint32_t ancestor : draft->path(node)) path_.push_back(draft->tokens[ancestor]);
    TURBO_RETURN_IF_ERROR(fill(request, n_generated, path_, row(row_of_node[node])));
  }
  return Status::ok();
}

}  // namespace turbo::engine
