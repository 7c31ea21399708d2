// Drafts that a second model makes, step by step, through turbo.host.program. Engine thread only, but for the constructor.
//
// Before a round the draft model's text lacks the newest token (and, after a draft that held whole, the last drafted one
// too: it was never run). They run first; their logits give the first level of the draft, and each further level is one
// run of all live nodes. Nodes whose tokens came to be stay in the model's cache; the others are forgotten.
#pragma once

#include <turbo/abi/draft/arch_pack.h>
#include <turbo/drafter.hpp>

#include <string>
#include <unordered_map>
#include <vector>

#include "draft_pool.h"

namespace turbo::spec_standalone {

struct DraftShape {
  uint32_t steps = 3;
  uint32_t branches = 1;
};

class ModelDrafter {
 public:
  /// `path` empty: the first `n_layers` layers of the target. `token_map`: see token_map.h; empty: any token may be drafted.
  ModelDrafter(const Host& host, const DraftShape& shape, std::string path, uint32_t n_layers, const std::string& token_map);
  ~ModelDrafter();
  ModelDrafter(const ModelDrafter&) = delete;
  ModelDrafter& operator=(const ModelDrafter&) = delete;

  void needs(turbo_drafter_needs& needs) const;
  void open(uint32_t sequence);
  void close(uint32_t sequence);
  void observe(uint32_t sequence, const Observation& observation);
  void propose(Proposals proposals);

 private:
  struct Session {
    uint64_t n_seen = 0;            // tokens heard of
    std::vector<int32_t> pending;   // of them not in the draft model's text yet
    std::vector<int32_t> nodes, parents;  // of the draft model's tree
    bool done = false;              // no more drafts: too long, or a token that the draft model lacks
  };
  // One proposal that is being worked on.
  struct Draft {
    turbo_proposal* proposal;
    Session* session;
    uint32_t steps = 0;
    DraftPool pool;
    std::vector<int32_t> ran;  // pool nodes whose logits the current run gives
  };
  struct Row {
    Draft* draft;
    int32_t parent;  // pool index of the node whose logits it is; -1: of the text
  };

  void stop_drafting(uint32_t sequence, Session& session);
  void reconcile(uint32_t sequence, Session& session);
  void catch_up(uint32_t sequence, Session& session);
  void first_level(std::vector<Draft*>& drafts);
  void next_level(std::vector<Draft*>& drafts);
  void run(std::vector<turbo_draft_group>& groups, turbo_view& logits);
  void take_logits(Draft& draft, const turbo_view& logits, uint32_t row, int32_t parent);
  static void answer(Draft& draft);
  void must(turbo_status status);

  Host host_;
  DraftShape shape_;
  const turbo_host_program* service_ = nullptr;
  turbo_error error_{sizeof(turbo_error), 0, {}, {}};
  turbo_draft_model* model_ = nullptr;
  turbo_draft_facts facts_{};
  std::unordered_map<uint32_t, Session> sessions_;
  std::vector<int32_t> allowed_;  // by the token map; empty: all
  std::vector<Candidate> candidates_;
  std::vector<std::vector<int32_t>> tokens_, parents_;  // of the groups of a run
};

}  // namespace turbo::spec_standalone
