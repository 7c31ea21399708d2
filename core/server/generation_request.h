// What chat and completions share: checked fields into engine requests.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/backend.h"
#include "server/fields.h"
#include "server/generation.h"

namespace turbo::server {

/// A value or the answer to the client.
template <typename T>
using Checked = std::variant<T, ApiError>;

#define TURBO_CHECKED(declaration, expr)                                        \
  auto TURBO_CONCAT(checked_, __LINE__) = (expr);                               \
  if (auto* checked_error = std::get_if<ApiError>(&TURBO_CONCAT(checked_, __LINE__))) return std::move(*checked_error); \
  declaration = std::move(std::get<0>(TURBO_CONCAT(checked_, __LINE__)))

struct ServerLimits {
  uint32_t max_queue = 256;
  uint64_t request_timeout_ms = 0;
  bool lenient_model = true;
  std::string fingerprint;
};

struct CommonRequest {
  engine::Request request;  // prompt, max_tokens and name still open
  std::vector<std::string> stops;
  uint32_t n = 1;
  Answer answer;  // id still open
};

/// Everything but the prompt, the token limit and log probabilities. `body` has passed its table.
Checked<CommonRequest> read_common(const Json& body, const Backend& backend, const ServerLimits& limits);

/// The generation budget of a prompt of `n_prompt` tokens: `wanted` (absent = all) capped to the window;
/// context_length_exceeded when not even the least fits.
/// For a prompt whose length is known only to be too long.
ApiError context_exceeded(size_t least_tokens, uint32_t context);
Checked<uint32_t> fit_to_window(size_t n_prompt, std::optional<int64_t> wanted, uint32_t min_tokens, uint32_t context);

/// What may shape an answer: one constraint at most, and a well-formed response_format; those not offered are refused.
std::optional<ApiError> check_one_constraint(const Json& body);
std::optional<ApiError> check_response_format(const Json& body);

std::optional<ApiError> check_model(const Json& body, const Backend& backend, bool lenient);

/// Token ids of a JSON array, each inside the vocabulary.
Checked<std::vector<int32_t>> read_token_ids(const Json& array, const std::string& param, int32_t vocab_size);

}  // namespace turbo::server
