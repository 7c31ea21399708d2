// Needles among 4,000 tokens, with every codec and with codecs for keys or values alone.
#include "retrieval.h"

namespace turbo::engine::testing {
namespace {

constexpr uint32_t kLength = 4000;  // the last block is not full

TEST(Retrieval, EveryCodecFindsEveryNeedleIn4kTokens) { find_needles(kLength, 4, 2, kv_choices()); }

TEST(Retrieval, CodecsOfOneSideFindEveryNeedle) {
  find_needles(kLength, 2, 1,
               {{"q8", "f16", {}},
                {"f16", "q8", {}},
                {"q4", "f16", {}},
                {"f16", "q4", {}},
                {"fp8_e4m3", "q4", {{"scale", "head"}}},
                {"q8", "q4", {{"rotate", "hadamard"}}}});
}

// The question is hard enough: without its needle a query finds nothing near the margin.
TEST(Retrieval, AQueryWithoutItsNeedleHasNoClearAnswer) {
  const model::testing::TempFolder folder;
  const std::filesystem::path file = folder.write("retrieval.gguf", RetrievalModel(4, 2).gguf(kLength + 64));
  Haystack hay = make_haystack(kLength);
  ModelSetup setup;
  setup.kv = "f16";
  setup.tune = [&](profile::Profile& profile) {
    profile.model.path = file;
    profile.model.context = kLength + 64;
    profile.kv.pool_tokens = kLength + 512;
  };
  auto runtime = load(setup);
  ASSERT_TRUE(runtime);
  for (const Needle& needle : hay.needles) hay.tokens[needle.position] = RetrievalModel::filler(needle.key);
  for (const Needle& needle : hay.needles) {
    auto run = std::make_shared<Answer>();
    Request request;
    request.prompt = joined(hay.tokens, {RetrievalModel::query(needle.key)});
    request.max_tokens = 1;
    request.sampling.temperature = 0;
    request.logprobs = true;
    request.n_top_logprobs = 2;
    ASSERT_TRUE(runtime->engine().submit(std::move(request), run));
    run->wait();
    ASSERT_EQ(run->tokens.size(), 1u);
    EXPECT_LT(run->tokens[0].top[0].logprob - run->tokens[0].top[1].logprob, RetrievalModel::kDigitMargin / 2);
  }
}

}  // namespace
}  // namespace turbo::engine::testing
