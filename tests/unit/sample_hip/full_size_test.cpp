// The sizes of real vocabularies, which take fibers their time.
#include <turbo/kernel/chain_ops.hpp>

#include "kernels.h"

namespace turbo::kernels {

using namespace turbo::gpu;

// T15, V4.
TEST(FullSize, RowArgmaxOfRealVocabularies) {
  std::mt19937 rng(1);
  for (const uint32_t vocab : {32771u, 50000u, 131073u, 151936u, 248320u}) {
    std::vector<float> x(vocab);
    for (float& v : x) v = as_bf16(static_cast<float>(rng() % 4096) / 128);
    x[vocab - 1] = x[vocab / 2] = 40;
    ArgmaxRow scratch{};
    int64_t token = -7;
    DraftStepArgs a{};
    a.logits = logit_rows(x.data(), vocab, vocab, 1, argmax_splits(vocab, 1));
    a.scratch = &scratch;
    a.token = &token;
    launch("draft_topk1_postprocess", a.logits.splits, a, kArgmaxThreads);
    EXPECT_EQ(token, vocab / 2);
  }
}

TEST(FullSize, ChainsOfRealVocabularies) {
  std::mt19937 rng(2);
  constexpr uint32_t b = 2, w = 4, vocab = 151936;
  std::vector<float> x(uint64_t{b} * w * vocab);
  for (float& v : x) v = as_bf16(static_cast<float>(rng() % 65536) / 4096);
  std::vector<int32_t> target, predict(b * w, -7), index(b * w, -7), correct(b, -7), lens(b, -7), want_predict(b * w), want_index(b * w), want_correct(b), want_lens(b);
  for (uint32_t r = 0; r < b * w; ++r) target.push_back(static_cast<int32_t>(chain_ops::row_argmax(x.data() + uint64_t{r} * vocab, vocab).index));
  std::vector<int64_t> candidates(b * w, 3);
  candidates[1] = target[0], candidates[2] = target[1], candidates[5] = target[4], candidates[7] = target[6];
  std::vector<uint64_t> keys(b * w);
  std::vector<uint32_t> nan(b * w);
  uint32_t arrivals = 0;
  ChainVerifyArgs a{};
  a.logits = logit_rows(x.data(), vocab, vocab, b * w, argmax_splits(vocab, b * w));
  a.scratch = {&arrivals, nan.data(), keys.data()};
  a.candidates = candidates.data(), a.n_requests = b, a.width = w;
  a.predict = predict.data(), a.accept_index = index.data(), a.num_correct = correct.data(), a.accept_lens = lens.data();
  launch("greedy_chain_verify", b * w * a.logits.splits, a, kArgmaxThreads);
  chain_ops::verify(candidates.data(), target.data(), b, w, want_predict.data(), want_index.data(), want_correct.data(), want_lens.data());
  EXPECT_EQ(predict, want_predict);
  EXPECT_EQ(index, want_index);
  EXPECT_EQ(correct, want_correct);
  EXPECT_EQ(lens, want_lens);
}

}  // namespace turbo::kernels
