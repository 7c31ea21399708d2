// Time per row of the standard sampler on a vocabulary of 151,669. Median, lowest and highest of 101 runs, µs.
#include "distribution.h"

#include <turbo/kernel/random.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

using namespace turbo;
using namespace turbo::sample_standard;

int main(int argc, char** argv) {
  const bool json = argc > 1 && std::strcmp(argv[1], "--json") == 0;
  constexpr uint64_t kVocab = 151669;
  std::vector<float> logits(kVocab);
  for (uint64_t i = 0; i < kVocab; ++i) {
    double sum = 0;
    for (uint64_t k = 0; k < 6; ++k) sum += turbo_uniform(7 + k, i) - 0.5;
    logits[i] = static_cast<float>(sum * 5);
  }
  std::vector<int32_t> tokens(4096);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(turbo_mix64(i) % kVocab);
  std::vector<uint32_t> mask((kVocab + 31) / 32, 0x55555555u);

  struct Case { const char* name; SampleRow row; bool logprob; };
  SampleRow greedy;
  greedy.logits = logits;
  greedy.temperature = 0;
  SampleRow plain = greedy, top_k = greedy, top_p = greedy, both = greedy, penalised = greedy, masked = greedy, typical = greedy;
  plain.temperature = top_k.temperature = top_p.temperature = both.temperature = typical.temperature = 0.7f;
  top_k.top_k = both.top_k = 40;
  top_p.top_p = both.top_p = 0.9f;
  typical.typical_p = 0.9f;
  penalised.repetition_penalty = 1.1f;
  penalised.output = tokens;
  masked.mask = mask;
  const Case cases[] = {{"greedy", greedy, false}, {"greedy+logprob", greedy, true}, {"greedy+mask", masked, false},
                        {"greedy+penalties", penalised, false}, {"temperature", plain, false}, {"top_k", top_k, false},
                        {"top_p", top_p, false}, {"top_k+top_p", both, false}, {"typical", typical, false}};
  Distribution distribution;
  for (const Case& c : cases) {
    std::vector<double> us;
    int64_t check = 0;
    for (uint64_t run = 0; run < 111; ++run) {
      const auto begin = std::chrono::steady_clock::now();
      distribution.prepare(c.row);
      const int32_t id = distribution.draw(turbo_uniform(1, run));
      if (c.logprob) check += distribution.logprob(id) < 0;
      const auto end = std::chrono::steady_clock::now();
      check += id;
      if (run >= 10) us.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
    }
    std::sort(us.begin(), us.end());
    std::printf(json ? "{\"case\":\"%s\",\"median_us\":%.1f,\"min_us\":%.1f,\"max_us\":%.1f,\"check\":%lld}\n"
                     : "%-18s %9.1f  (%.1f .. %.1f)  check %lld\n",
                c.name, us[us.size() / 2], us.front(), us.back(), static_cast<long long>(check));
  }
}
