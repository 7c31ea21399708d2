// Cost of the n-gram corpus and of the repeats of a sequence: microseconds per token, bytes per node. Built on demand.
//   ngram_bench [--json] [--depth 18] [--tokens 200000] [--nodes 0] [--match BFS|PROB]
// The text is Zipf-like with repeats; with --nodes N the corpus is filled to N nodes first (32 N bytes and more).
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <turbo/draft/ngram.hpp>
#include <turbo/draft/suffix.hpp>

using namespace turbo::draft;

namespace {

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<int32_t> text(std::mt19937_64& random, size_t n) {
  std::vector<int32_t> tokens;
  std::uniform_real_distribution<double> uniform;
  while (tokens.size() < n) {
    if (tokens.size() > 100 && random() % 12 == 0) {
      const size_t from = random() % (tokens.size() - 60), length = 4 + random() % 40;
      for (size_t i = 0; i < length; ++i) tokens.push_back(tokens[from + i]);
    } else {
      tokens.push_back(static_cast<int32_t>(std::pow(50000.0, uniform(random))) - 1);
    }
  }
  tokens.resize(n);
  return tokens;
}

struct Spread {
  double median, low, high;
};
Spread spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values[values.size() / 20], values[values.size() - 1 - values.size() / 20]};
}

void show(bool json, const char* what, const Spread& s) {
  if (json)
    std::printf("{\"what\": \"%s\", \"median_us\": %.3f, \"p5_us\": %.3f, \"p95_us\": %.3f}\n", what, s.median, s.low,
                s.high);
  else
    std::printf("%-44s %8.3f us  (p5 %.3f, p95 %.3f)\n", what, s.median, s.low, s.high);
}

}  // namespace

int main(int n_arguments, char** arguments) {
  bool json = false;
  size_t n_tokens = 200000;
  uint64_t n_nodes = 0;
  NgramSettings settings;
  for (int i = 1; i < n_arguments; ++i) {
    const std::string name = arguments[i];
    const char* value = i + 1 < n_arguments ? arguments[i + 1] : "";
    if (name == "--json")
      json = true;
    else if (name == "--depth")
      settings.max_depth = static_cast<uint32_t>(std::atoi(value)), ++i;
    else if (name == "--tokens")
      n_tokens = static_cast<size_t>(std::atoll(value)), ++i;
    else if (name == "--nodes")
      n_nodes = static_cast<uint64_t>(std::atoll(value)), ++i;
    else if (name == "--match")
      settings.match = std::string(value) == "PROB" ? NgramMatch::prob : NgramMatch::bfs, ++i;
    else
      return std::fprintf(stderr, "unknown option %s\n", name.c_str()), 2;
  }
  settings.capacity = std::max<uint64_t>(settings.capacity, n_nodes + settings.max_depth + 1);
  std::mt19937_64 random(1);
  NgramCorpus corpus(settings);
  while (corpus.n_nodes() < n_nodes) corpus.insert(text(random, 4096));
  const std::vector<int32_t> tokens = text(random, n_tokens);
  const std::span<const int32_t> all(tokens);

  std::vector<double> insert, extend, match, repeat;
  constexpr size_t kPiece = 500;
  size_t at = 0;
  for (; at + kPiece < n_tokens / 2; at += kPiece) {
    const double start = now_us();
    corpus.extend(all.first(at), all.subspan(at, kPiece));
    insert.push_back((now_us() - start) / kPiece);
  }
  DraftNodes draft;
  uint64_t drafted = 0;
  for (; at < n_tokens; ++at) {
    const double start = now_us();
    corpus.extend(all.first(at), all.subspan(at, 1));
    const double extended = now_us();
    corpus.match(all.first(at + 1), 11, {}, draft);
    match.push_back(now_us() - extended);
    extend.push_back(extended - start);
    drafted += draft.size();
  }
  RepeatFinder finder(1 << 16);
  for (size_t from = 0; from + kPiece <= n_tokens; from += kPiece) {
    const double start = now_us();
    finder.push(all.subspan(from, kPiece));
    repeat.push_back((now_us() - start) / kPiece);
  }
  show(json, "insert, per token (pieces of 500)", spread(insert));
  show(json, "extend by one token", spread(extend));
  show(json, "match, 11 nodes", spread(match));
  show(json, "repeats, per token", spread(repeat));
  const double nodes = static_cast<double>(corpus.n_nodes()), bytes = static_cast<double>(corpus.bytes());
  if (json)
    std::printf("{\"nodes\": %.0f, \"bytes\": %.0f, \"repeat_bytes\": %llu}\n", nodes, bytes,
                static_cast<unsigned long long>(finder.bytes()));
  else
    std::printf("%.0f nodes, %.1f MiB, %.1f bytes per node; repeats %.1f MiB; %.1f nodes per draft\n", nodes,
                bytes / (1 << 20), bytes / nodes, static_cast<double>(finder.bytes()) / (1 << 20),
                static_cast<double>(drafted) / static_cast<double>(match.size()));
}
