// The drafter "saguaro": an outcome cache around one inner drafter. [engine] but for what foresight.h says about its thread.
#pragma once

#include "foresight.h"

#include <optional>

namespace turbo::saguaro {

class Saguaro : public Drafter<Saguaro> {
 public:
  explicit Saguaro(const Host& host);
  /// With a given number of CPUs that the target leaves idle.
  Saguaro(const Host& host, uint32_t idle_cpus);

  void start();
  void stop();

  void needs(turbo_drafter_needs& needs) override;
  void open(uint32_t sequence) override;
  void close(uint32_t sequence) override;
  void observe(uint32_t sequence, const Observation& observation) override;
  bool poll(Proposals proposals) override;
  void cancel() override;

  /// Whether drafts are made ahead; else all calls go through to the inner drafter.
  bool works() const { return foresight_ != nullptr && !broken_; }
  const draft::OutcomeCache& cache() const { return cache_; }
  const draft::InnerDrafters& inner() const { return inner_; }
  const Foresight* foresight() const { return foresight_.get(); }

 private:
  struct Session {
    draft::OutcomeKey now;
    std::vector<int32_t> recent;  // newest tokens: TURBO_AHEAD_TOKENS or all
    draft::DraftNodes draft;      // under verification
    bool drafted = false;
    double acceptance = 0.6;      // of a draft's next token
  };

  void learn_from(Session& session, const Observation& observation);
  void hear(Session& session, const Observation& observation);
  void answer(Proposals proposals);
  void post();
  void tell();

  const Host host_;
  draft::InnerDrafters inner_;
  draft::OutcomeCache cache_;
  ForesightSettings settings_;
  const uint32_t idle_;
  std::unique_ptr<Foresight> foresight_;
  bool broken_ = false;
  uint64_t next_session_ = 1;
  std::unordered_map<uint32_t, Session> sessions_;
  std::unordered_map<uint64_t, uint32_t> by_id_;  // session -> sequence
  std::vector<draft::InnerAsk> asks_;
  std::vector<draft::InnerAsk*> misses_;
  std::vector<std::pair<uint32_t, Session*>> moments_;
  struct Told {
    uint64_t hits = 0, misses = 0, wasted = 0, built = 0, faults = 0;
  } told_;
};

}  // namespace turbo::saguaro
