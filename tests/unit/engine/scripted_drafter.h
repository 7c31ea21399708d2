// A drafter scripted by a mode: right and wrong trees and chains, garbage, errors. It checks what it is told.
#pragma once

#include <turbo/abi/drafter.h>

#include <chrono>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "fake_pack.h"

namespace turbo::engine::testing {

// A drafter that proposes trees holding the right continuation on some branch, scripted by a seed.
struct ScriptedDrafter {
  std::map<uint32_t, std::vector<int32_t>> history;
  std::mt19937 rng{7};
  int mode = 0;  // 0 trees, 1 chains, 2 garbage tokens, 3 errors, 4 too many nodes, 5 pending
  uint32_t slow_us = 0;  // each poll takes so long
  uint64_t proposals = 0;
  bool wrong_history = false;
  bool asked_early = false;  // for a draft below a token that it was not told

  static ScriptedDrafter& of(void* self) { return *static_cast<ScriptedDrafter*>(self); }

  void fill(turbo_proposal& proposal) {
    ++proposals;
    const std::vector<int32_t>& tokens = history[proposal.sequence];
    asked_early |= tokens.empty();
    const uint32_t capacity = proposal.max_slots - 1;
    std::vector<int32_t> path = tokens;
    int32_t parent = -1;
    for (uint32_t n = 0; n < capacity;) {
      const bool right = rng() % 4 != 0;
      const int32_t want = greedy(path);
      if (mode == 0 && rng() % 2) {  // a wrong sibling first
        proposal.tokens[n] = (want + 1) % kVocab;
        proposal.parents[n] = parent;
        if (++n == capacity) break;
      }
      proposal.tokens[n] = right ? want : (want + 2) % kVocab;
      proposal.parents[n] = parent;
      path.push_back(proposal.tokens[n]);
      parent = static_cast<int32_t>(n++);
      proposal.n = n;
    }
    proposal.n = capacity;
    if (mode == 2) proposal.tokens[0] = 5000;
    if (mode == 4) proposal.n = capacity + 50;
  }
};

inline const turbo_drafter* scripted_api() {
  static const turbo_drafter api = [] {
    turbo_drafter d{};
    d.struct_size = sizeof d;
    d.needs = [](void*, turbo_drafter_needs* needs, turbo_error*) -> turbo_status {
      needs->max_slots = 12;
      needs->wants_prompt = 1;
      return TURBO_OK;
    };
    d.open = [](void* self, uint32_t sequence, turbo_error*) -> turbo_status {
      ScriptedDrafter::of(self).history[sequence].clear();
      return TURBO_OK;
    };
    d.close = [](void* self, uint32_t sequence) { ScriptedDrafter::of(self).history.erase(sequence); };
    d.observe = [](void* self, uint32_t sequence, const turbo_observation* o, turbo_error*) -> turbo_status {
      auto& history = ScriptedDrafter::of(self).history[sequence];
      if (o->position != history.size()) ScriptedDrafter::of(self).wrong_history = true;
      history.insert(history.end(), o->tokens, o->tokens + o->n_tokens);
      return TURBO_OK;
    };
    d.poll = [](void* self, turbo_proposal* proposals, uint32_t n, turbo_error*) -> turbo_status {
      ScriptedDrafter& drafter = ScriptedDrafter::of(self);
      if (drafter.slow_us) std::this_thread::sleep_for(std::chrono::microseconds(drafter.slow_us));
      if (drafter.mode == 3) return TURBO_INTERNAL;
      if (drafter.mode == 5) return TURBO_PENDING;
      for (uint32_t i = 0; i < n; ++i) drafter.fill(proposals[i]);
      return TURBO_OK;
    };
    return d;
  }();
  return &api;
}

}  // namespace turbo::engine::testing
