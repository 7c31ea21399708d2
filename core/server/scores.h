// Log probabilities as JSON. Pure; any thread.
#pragma once

#include "server/choice.h"
#include "server/json_body.h"

namespace turbo::server {

/// {"content": [{token, logprob, bytes, top_logprobs}], "refusal": null}
Json chat_logprobs(const std::vector<Score>& scores, const text::Tokenizer& tokenizer);
/// {tokens, token_logprobs, top_logprobs, text_offset}
Json completion_logprobs(const std::vector<Score>& scores, const text::Tokenizer& tokenizer);

}  // namespace turbo::server
