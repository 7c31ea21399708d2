// Needles among 32,000 tokens with every codec.
#include "retrieval.h"

namespace turbo::engine::testing {
namespace {

TEST(RetrievalLong, EveryCodecFindsEveryNeedleIn32kTokens) { find_needles(32000, 2, 1, kv_choices()); }

}  // namespace
}  // namespace turbo::engine::testing
