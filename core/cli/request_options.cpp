#include "cli/request_options.h"

#include <limits>

namespace turbo::cli {

Result<engine::Request> make_request(const Arguments& arguments, const engine::Runtime& runtime) {
  engine::Request request;
  request.name = arguments.command;
  engine::Sampling& sampling = request.sampling;
  sampling = runtime.default_sampling();
  const auto real = [&](const char* name, float& field, double least, double most) -> Status {
    TURBO_ASSIGN(const double value, arguments.real(name, field, least, most));
    field = static_cast<float>(value);
    return Status::ok();
  };
  TURBO_RETURN_IF_ERROR(real("--temperature", sampling.temperature, 0, 2));
  TURBO_RETURN_IF_ERROR(real("--top-p", sampling.top_p, 0, 1));
  TURBO_RETURN_IF_ERROR(real("--min-p", sampling.min_p, 0, 1));
  TURBO_RETURN_IF_ERROR(real("--repetition-penalty", sampling.repetition_penalty, 1e-3, 100));
  TURBO_ASSIGN(const int64_t top_k, arguments.integer("--top-k", sampling.top_k, -1, INT32_MAX));
  sampling.top_k = static_cast<int32_t>(top_k);
  if (arguments.has("--seed")) {
    TURBO_ASSIGN(const int64_t seed, arguments.integer("--seed", 0, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()));
    sampling.seed = static_cast<uint64_t>(seed);
  }
  TURBO_ASSIGN(const int64_t max_tokens, arguments.integer("--max-tokens", 256, 0, INT32_MAX));
  request.max_tokens = static_cast<uint32_t>(max_tokens);
  for (const std::string& stop : arguments.all("--stop"))
    if (stop.empty()) return error(Code::invalid_argument, "{}: an empty text stops everything", arguments.shown("--stop"));
  if (!arguments.has("--ignore-eos")) {
    if (const auto tokenizer = runtime.tokenizer()) request.end_tokens.assign((*tokenizer)->end_ids().begin(), (*tokenizer)->end_ids().end());
    else for (const uint32_t id : runtime.config().eos_ids) request.end_tokens.push_back(static_cast<int32_t>(id));
  }
  return request;
}

}  // namespace turbo::cli
