// Drafter "ngram": what followed the last tokens before, in all sequences. Engine thread, and one worker where a core
// is idle.
#include <filesystem>
#include <memory>
#include <turbo/draft/ngram_options.hpp>
#include <turbo/drafter.hpp>
#include <unordered_map>

#include "corpus_file.h"
#include "session.h"

namespace turbo::spec_ngram {
namespace {

constexpr const char* kOptions = R"({
  "max_slots": {"type": "int", "default": 12, "min": 2, "max": 64, "doc": "most slots of a draft, the root included"},
  "max_trie_depth": {"type": "int", "default": 18, "min": 2, "max": 256, "doc": "longest token sequence that the corpus remembers"},
  "match_type": {"type": "string", "default": "BFS", "enum": ["BFS", "PROB"], "doc": "order of continuations: recency or frequency"},
  "min_bfs_breadth": {"type": "int", "default": 1, "min": 1, "max": 64, "doc": "fewest children that a draft node gets"},
  "max_bfs_breadth": {"type": "int", "default": 10, "min": 1, "max": 64, "doc": "most children that a draft node gets"},
  "capacity": {"type": "int", "default": 10000000, "min": 3, "max": 1000000000, "doc": "nodes that the corpus may hold, 32 bytes each and a table"},
  "suffix": {"type": "string", "default": "on", "enum": ["on", "off"], "doc": "continue the longest repeat of a sequence when it is longer than the trie is deep"},
  "corpus": {"type": "string", "default": "", "doc": "file of token ids, or of a saved corpus: read at the start; a saved corpus is saved again at the end"}})";

class NgramDrafter : public Drafter<NgramDrafter> {
 public:
  explicit NgramDrafter(const Host& host)
      : host_(host),
        max_slots_(static_cast<uint32_t>(host.option("max_slots", 12))),
        path_(host.option("corpus", "")),
        corpus_(draft::ngram_settings(host)),
        learner_(corpus_, host),
        session_settings_{corpus_.settings().max_depth, host.option("suffix", "on") == "on"} {
    if (!path_.empty()) path_ = std::filesystem::absolute(path_).string();
  }
  ~NgramDrafter() override { learner_.stop(); }

  void start() {
    if (!path_.empty()) {
      form_ = load_corpus(host_, path_, corpus_);
      // Told now and not when there is something to lose.
      if (form_ == CorpusForm::none && !std::filesystem::is_directory(std::filesystem::path(path_).parent_path()))
        throw Failure(TURBO_INVALID_ARGUMENT, "corpus " + path_ + ": its folder does not exist", "make the folder, or choose another one");
      host_.log(TURBO_LOG_INFO, form_ == CorpusForm::none
                                    ? "corpus " + path_ + ": nothing there yet, it will be written at the end"
                                    : "corpus " + path_ + ": " + std::to_string(corpus_.n_nodes()) + " n-grams");
    }
    learner_.start();
    started_ = true;
  }
  void stop() {
    learner_.stop();
    // Texts that are still open are part of what is saved.
    for (auto& [sequence, session] : sessions_) session->learn(learner_, known_, !forgets(), LearnWhen::ended);
    if (!started_ || path_.empty() || form_ == CorpusForm::text || !observed_) return;
    started_ = false;
    try {
      save_corpus(host_, path_, corpus_);
    } catch (const Failure& failure) {
      host_.log(TURBO_LOG_ERROR, failure.message + (failure.hint.empty() ? "" : " (" + failure.hint + ")"));
    }
  }

  void needs(turbo_drafter_needs& needs) override {
    needs.max_slots = max_slots_;
    needs.wants_prompt = 1;
  }
  void open(uint32_t sequence) override { sessions_[sequence] = std::make_unique<Session>(session_settings_); }
  void close(uint32_t sequence) override {
    if (const auto found = sessions_.find(sequence); found != sessions_.end()) {
      found->second->learn(learner_, known_, !forgets(), LearnWhen::ended);
      sessions_.erase(found);
    }
    report();
  }
  void observe(uint32_t sequence, const Observation& observation) override {
    const auto found = sessions_.find(sequence);
    if (found == sessions_.end())
      throw Failure(TURBO_NOT_FOUND, "sequence " + std::to_string(sequence) + " is not open");
    observed_ = true;
    found->second->observe(observation.tokens());
    found->second->learn(learner_, known_, !forgets(), LearnWhen::heard);
  }
  void propose(DraftTree& draft) override {
    const auto found = sessions_.find(draft.sequence());
    if (found == sessions_.end() || draft.capacity() == 0) return;
    Session& session = *found->second;
    session.learn(learner_, known_, !forgets(), LearnWhen::asked);
    nodes_.clear();
    const uint32_t repeat = session.repeat_length();
    if (repeat < session_settings_.max_depth && !corpus_.match(session.context(), draft.capacity(), {}, nodes_))
      host_.counter_add("ngram_busy");
    // The corpus sees max_depth - 1 tokens back; and a prompt that is still being learnt is known to the sequence
    // alone.
    if (repeat > nodes_.match_length &&
        (repeat >= session_settings_.max_depth || session.n_waiting() > 0 || nodes_.size() == 0))
      session.repeat_draft(draft.capacity(), nodes_);
    for (uint32_t i = 0; i < nodes_.size(); ++i) draft.add(nodes_.tokens[i], nodes_.parents[i], nodes_.scores[i]);
  }
  // [worker] The corpus alone, whose readers never wait. Where it knows as much as it can, the sequence's own repeats may go
  // further: that draft is left to propose.
  void ahead(const Hypothesis& text, DraftTree& draft) override {
    const std::span<const int32_t> tokens = text.tokens();
    const uint32_t depth = session_settings_.max_depth;
    ahead_nodes_.clear();
    if (draft.capacity() == 0 || !corpus_.match(tokens.last(std::min<size_t>(tokens.size(), depth)), draft.capacity(), {}, ahead_nodes_)) return;
    if (session_settings_.suffix && ahead_nodes_.match_length + 1 >= depth) return;
    for (uint32_t i = 0; i < ahead_nodes_.size(); ++i) draft.add(ahead_nodes_.tokens[i], ahead_nodes_.parents[i], ahead_nodes_.scores[i]);
  }

 private:
  /// Once the corpus forgets, a known text may be forgotten too.
  bool forgets() const { return corpus_.n_nodes() + 1 + corpus_.settings().max_depth >= corpus_.settings().capacity; }
  void report() const {
    host_.gauge_set("ngram_nodes", static_cast<double>(corpus_.n_nodes()));
    host_.gauge_set("ngram_bytes", static_cast<double>(corpus_.bytes()));
  }

  const Host host_;
  const uint32_t max_slots_;
  std::string path_;
  CorpusForm form_ = CorpusForm::none;
  bool started_ = false, observed_ = false;
  draft::NgramCorpus corpus_;
  Learner learner_;
  const SessionSettings session_settings_;
  KnownPrefixes known_;
  std::unordered_map<uint32_t, std::unique_ptr<Session>> sessions_;
  draft::DraftNodes nodes_;
  draft::DraftNodes ahead_nodes_;  // of ahead() alone
};

}  // namespace
}  // namespace turbo::spec_ngram

TURBO_PLUGIN("dev.turbo.spec_ngram", "N-gram drafter", "0.1.0", "turbo", "Apache-2.0",
             turbo::component<turbo::spec_ngram::NgramDrafter>(TURBO_KIND_DRAFTER, "ngram", TURBO_TIER_CPU,
                                                               turbo::spec_ngram::kOptions))
