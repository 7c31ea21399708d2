// Whether two models speak of the same tokens: what a draft model is checked against. Pure; any thread.
#pragma once

#include "base/status.h"
#include "text/tokenizer.h"

namespace turbo::text {

/// How many ids, counted from 0, mean the same in both vocabularies: those that both have. Ids that are unused in one of
/// them may be anything in the other. invalid_argument names the first id whose text or kind differs, with both texts, or
/// the special token whose ids differ.
Result<uint32_t> shared_vocabulary(const Tokenizer& target, const Tokenizer& draft);

}  // namespace turbo::text
