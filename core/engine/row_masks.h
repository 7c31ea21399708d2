// Token masks of a step's sampled rows, written into the step table. Engine thread only.
//
// Sources, all met: end tokens before min_tokens, the request's banned tokens, the request's TokenMask. A row below a
// draft node that its parent's mask forbids is left open: no accepted path leads there.
#pragma once

#include <turbo/abi/draft/program.h>

#include <span>
#include <vector>

#include "base/status.h"
#include "engine/request.h"
#include "spec/draft_tree.h"

namespace turbo::engine {

class RowMasks {
 public:
  explicit RowMasks(uint32_t vocab) : vocab_(vocab) {}

  /// Before the rows of a step, whose table is filled but for masks.
  void begin(turbo_step_table& table) {
    table_ = &table;
    table_->masked = 0;
  }
  /// Rows of one request: logit rows `row_of_root` and, for draft node i, `row_of_node[i]`; `n_generated` tokens are
  /// committed beyond the prompt. A failure is the request's own.
  Status add(const Request& request, uint32_t n_generated, uint32_t row_of_root, const spec::DraftTree* draft,
             std::span<const uint32_t> row_of_node);

 private:
  static bool restricts(const Request& request, uint32_t n_generated, uint32_t depth);
  std::span<uint32_t> row(uint32_t index) { return {table_->mask + size_t{index} * table_->mask_words, table_->mask_words}; }
  void open_all();
  void ban(std::span<uint32_t> words, std::span<const int32_t> ids) const;
  Status fill(const Request& request, uint32_t n_generated, std::span<const int32_t> path, std::span<uint32_t> words);

  uint32_t vocab_;
  turbo_step_table* table_ = nullptr;
  std::vector<char> reachable_;
  std::vector<int32_t> path_;
};

}  // namespace turbo::engine
