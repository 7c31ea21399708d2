// The drafter "phantom": sessions, what verification teaches, and who builds the next draft. [engine] but for what
// ghosts.h says about its threads.
#pragma once

#include "ghosts.h"
#include "repair_control.h"
#include "scaler.h"

#include <turbo/drafter.hpp>

#include <unordered_map>

namespace turbo::phantom {

class Phantom : public Drafter<Phantom> {
 public:
  explicit Phantom(const Host& host);
  /// With a given number of CPUs for ghosts.
  Phantom(const Host& host, uint32_t idle_cpus);

  void start();  // from an empty corpus
  void stop();

  void needs(turbo_drafter_needs& needs) override;
  void open(uint32_t sequence) override;
  void close(uint32_t sequence) override;
  void observe(uint32_t sequence, const Observation& observation) override;
  bool poll(Proposals proposals) override;
  void cancel() override;

  uint64_t rounds() const { return rounds_; }  // drafts wanted: hits and misses
  uint64_t hits() const { return hits_; }
  uint64_t misses() const { return misses_; }
  const draft::NgramCorpus& corpus() const { return corpus_; }
  const draft::RejectedPairs& rejected() const { return rejected_; }
  const Ghosts& ghosts() const { return ghosts_; }

 private:
  struct Session {
    uint64_t id = 0;
    std::shared_ptr<Text> text = std::make_shared<Text>();
    std::vector<int32_t> recent;  // newest tokens, at least a context's worth when there are so many
    uint64_t position = 0;        // committed tokens
    bool drafted = false;         // draft is being verified
    draft::DraftNodes draft;
    std::vector<uint8_t> repaired;  // by node of draft
    double acceptance = 0.6;        // of a draft's next token
  };
  struct Ask {
    Session* session;
    turbo_proposal* proposal;
    bool ready = false;
  };

  void learn_from(Session& session, std::span<const int32_t> fresh, uint32_t n_accepted);
  void hear(Session& session, const Observation& observation);
  void teach(Session& session, bool last);
  void build_now(Ask& ask);
  void answer(Ask& ask);
  void post_job();
  void count(uint32_t hits, uint32_t misses);
  std::span<const int32_t> context(const Session& session) const;

  Host host_;
  uint32_t n_ghosts_;
  draft::NgramCorpus corpus_;
  draft::RejectedPairs rejected_;
  GhostSettings settings_;
  Builder builder_;
  Ghosts ghosts_;
  Scaler scaler_;
  RepairControl repair_;
  uint64_t next_session_ = 1;
  std::unordered_map<uint32_t, Session> sessions_;
  std::vector<Ask> asks_;
  std::vector<DraftKey> keys_;
  std::vector<int32_t> fresh_;
  uint64_t rounds_ = 0, hits_ = 0, misses_ = 0, built_told_ = 0;
};

}  // namespace turbo::phantom
