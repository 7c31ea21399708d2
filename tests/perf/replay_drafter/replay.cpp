// Drafter "replay", for measurements alone: offers drafts of the shapes that another drafter offered for another model, and
// lets as much of each hold as did there. So a model of random weights, whose texts say nothing, is verified with real
// acceptance: what its rows cost, and how the engine chooses lengths, is real.
//
// It knows the texts beforehand (file `texts`: a line for each, prompt length and all token ids) and takes the shapes from
// `trace`: lines "request" and, for each round of it, "MICROSECONDS N PARENTS.. A ACCEPTED..". A round of the trace covers the
// tokens that it emitted. Where a shorter draft ended within a round, the rest of it is offered as a chain: a drafter that
// had found the text would have gone on. The recorded time is spent by spinning.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <turbo/drafter.hpp>
#include <vector>

namespace {

constexpr const char* kOptions = R"({
  "trace": {"type": "string", "default": "", "doc": "file of recorded rounds"},
  "texts": {"type": "string", "default": "", "doc": "file of the texts that the model will write"}})";

constexpr uint64_t kLongestSpin = 50'000;  // microseconds

struct Round {
  std::chrono::microseconds spin{0};
  std::vector<int32_t> parents;
  std::vector<int32_t> accepted;  // nodes, from the root down
  uint32_t deepest = 0;
};

struct Text {
  size_t n_prompt = 0;
  std::vector<int32_t> tokens;
};

std::ifstream open_file(const std::string& path, const char* what) {
  std::ifstream file(path);
  if (!file) throw turbo::Failure(TURBO_INVALID_ARGUMENT, std::string(what) + " '" + path + "' cannot be read");
  return file;
}

Round read_round(const std::string& line) {
  std::istringstream words(line);
  Round round;
  uint64_t micros = 0;
  size_t n = 0, held = 0;
  words >> micros >> n;
  if (!words || n > 64) throw turbo::Failure(TURBO_INVALID_ARGUMENT, "trace: not a round: " + line);
  round.spin = std::chrono::microseconds(std::min(micros, kLongestSpin));
  std::vector<uint32_t> depth;
  for (size_t i = 0; i < n; ++i) {
    int32_t parent = -2;
    words >> parent;
    if (parent < -1 || parent >= static_cast<int32_t>(i)) throw turbo::Failure(TURBO_INVALID_ARGUMENT, "trace: a bad parent: " + line);
    round.parents.push_back(parent);
    depth.push_back(parent < 0 ? 1 : depth[static_cast<size_t>(parent)] + 1);
    round.deepest = std::max(round.deepest, depth.back());
  }
  words >> held;
  for (size_t i = 0; i < std::min(held, n); ++i) {
    int32_t node = -1;
    words >> node;
    if (node < 0 || node >= static_cast<int32_t>(n)) throw turbo::Failure(TURBO_INVALID_ARGUMENT, "trace: a bad node: " + line);
    round.accepted.push_back(node);
  }
  if (!words) throw turbo::Failure(TURBO_INVALID_ARGUMENT, "trace: cut short: " + line);
  return round;
}

class ReplayDrafter : public turbo::Drafter<ReplayDrafter> {
 public:
  explicit ReplayDrafter(const turbo::Host& host) {
    std::string line;
    for (auto file = open_file(host.option("trace", ""), "trace"); std::getline(file, line);) {
      if (line == "request") requests_.emplace_back();
      else if (requests_.empty()) throw turbo::Failure(TURBO_INVALID_ARGUMENT, "trace: it does not begin with a request");
      else requests_.back().push_back(read_round(line));
    }
    std::erase_if(requests_, [](const auto& rounds) { return rounds.empty(); });
    if (requests_.empty()) throw turbo::Failure(TURBO_INVALID_ARGUMENT, "trace: no rounds in it");
    for (auto file = open_file(host.option("texts", ""), "texts"); std::getline(file, line);) {
      std::istringstream words(line);
      Text text;
      words >> text.n_prompt;
      for (int32_t token = 0; words >> token;) text.tokens.push_back(token);
      if (text.n_prompt >= text.tokens.size()) throw turbo::Failure(TURBO_INVALID_ARGUMENT, "texts: a line without a text");
      texts_.push_back(std::move(text));
    }
  }

  void needs(turbo_drafter_needs& needs) override {
    needs.max_slots = 64;
    needs.wants_prompt = 1;
  }
  void open(uint32_t sequence) override { sessions_[sequence] = {}; }
  void close(uint32_t sequence) override { sessions_.erase(sequence); }
  void observe(uint32_t sequence, const turbo::Observation& observation) override {
    auto& tokens = sessions_[sequence];
    tokens.insert(tokens.end(), observation.tokens().begin(), observation.tokens().end());
  }
  void propose(turbo::DraftTree& draft) override {
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<int32_t>& said = sessions_[draft.sequence()];
    for (size_t i = 0; i < texts_.size(); ++i) {
      const Text& text = texts_[i];
      if (said.size() <= text.n_prompt || said.size() >= text.tokens.size()) continue;
      if (!std::equal(said.begin(), said.end(), text.tokens.begin())) continue;
      // The first token came with the prompt, before all rounds.
      const Round& round = offer(draft, requests_[i % requests_.size()], said.size() - text.n_prompt - 1,
                                 std::span(text.tokens).subspan(said.size()));
      while (std::chrono::steady_clock::now() - begin < round.spin) {
      }
      return;
    }
  }

 private:
  // Below 256, so every model knows it; another one for each `salt` up to 254, and never `truth`.
  static int32_t wrong(int32_t truth, uint32_t salt) { return static_cast<int32_t>((static_cast<uint32_t>(truth) + 1 + salt) % 256); }

  static const Round& offer(turbo::DraftTree& draft, const std::vector<Round>& rounds, size_t position, std::span<const int32_t> rest) {
    size_t length = 0;
    for (const Round& round : rounds) length += round.accepted.size() + 1;
    position %= length;
    size_t at = 0;
    while (position > rounds[at].accepted.size()) position -= rounds[at++].accepted.size() + 1;
    const Round& round = rounds[at];
    if (position == 0) offer_tree(draft, round, rest);
    else offer_chain(draft, round.accepted.size() - position, round.deepest - round.accepted.size(), rest);
    return round;
  }

  static int32_t truth(std::span<const int32_t> rest, size_t depth) { return depth < rest.size() ? rest[depth] : 0; }

  static void offer_tree(turbo::DraftTree& draft, const Round& round, std::span<const int32_t> rest) {
    size_t held = 0;
    std::vector<size_t> right(round.parents.size(), 0);  // depth of nodes on the accepted path, 0 for others
    for (uint32_t node = 0; node < round.parents.size() && !draft.full(); ++node) {
      const int32_t parent = round.parents[node];
      const bool follows = parent < 0 || right[static_cast<size_t>(parent)] > 0;
      const size_t depth = parent < 0 ? 0 : right[static_cast<size_t>(parent)];
      const bool holds = held < round.accepted.size() && round.accepted[held] == static_cast<int32_t>(node) && held < rest.size();
      if (holds) right[node] = ++held;
      draft.add(holds ? rest[depth] : wrong(follows ? truth(rest, depth) : 0, node), parent);
    }
  }
  static void offer_chain(turbo::DraftTree& draft, size_t right, size_t failing, std::span<const int32_t> rest) {
    int32_t parent = turbo::DraftTree::kRoot;
    for (size_t depth = 0; depth < right + failing && !draft.full(); ++depth) {
      const auto node = draft.add(depth < std::min(right, rest.size()) ? rest[depth] : wrong(truth(rest, depth), 0), parent);
      if (!node) return;
      parent = *node;
    }
  }

  std::vector<std::vector<Round>> requests_;
  std::vector<Text> texts_;
  std::map<uint32_t, std::vector<int32_t>> sessions_;
};

}  // namespace

TURBO_PLUGIN("dev.turbo.bench.replay", "Replays recorded drafts", "0.1.0", "turbo", "Apache-2.0",
             turbo::component<ReplayDrafter>(TURBO_KIND_DRAFTER, "replay", TURBO_TIER_CPU, kOptions))
