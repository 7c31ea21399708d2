// A draft model without weights, for tests of drafters that use turbo.host.program's model calls: it keeps texts and trees
// as the host does, refuses what breaks the rules, and takes its logits from a function of the tokens on a row's path.
#pragma once

#include <turbo/abi/draft/arch_pack.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace turbo::fake {

class DraftModel {
 public:
  // Scripted input.
  turbo_draft_facts facts{sizeof(turbo_draft_facts), 1, 0, 0, 4096, 64, 64, 0, 0, 0};
  std::function<float(const std::vector<int32_t>& path, int32_t token)> logit;
  std::string refusal;              // not empty: model_open answers with it
  uint32_t fail_runs = 0;           // that many runs fail
  uint32_t full = 0;                // that many groups find no block

  // What the drafter did.
  struct Sequence {
    std::vector<int32_t> text, nodes, parents;
  };
  std::map<uint32_t, Sequence> sequences;
  std::vector<std::string> opened;  // paths, "" for the target
  uint32_t opened_layers = 0;
  int live = 0;                     // opened and not closed
  uint32_t runs = 0, rows = 0;
  std::vector<uint32_t> group_counts;  // of each run

  turbo_status open(const turbo_draft_source& source, turbo_draft_model** model, turbo_draft_facts* out, turbo_error* error);
  turbo_status run(turbo_draft_group* groups, uint32_t n, turbo_view* logits, turbo_error* error);
  turbo_status keep(uint32_t sequence, const uint32_t* nodes, uint32_t n, turbo_error* error);
  void drop(uint32_t sequence) { sequences.erase(sequence); }

 private:
  void add_row(const std::vector<int32_t>& path);
  std::string find_fault(const turbo_draft_group& group) const;

  std::vector<float> logits_;
};

}  // namespace turbo::fake
