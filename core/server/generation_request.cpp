#include "server/generation_request.h"

#include <algorithm>
#include <charconv>
#include <ctime>

namespace turbo::server {
namespace {

constexpr size_t kMaxStops = 16, kMaxStopBytes = 256;

Checked<std::vector<std::string>> read_stops(const Json& body) {
  std::vector<std::string> stops;
  const Json* stop = find_field(body, "stop");
  if (!stop) return stops;
  const bool many = stop->is_array();
  const size_t count = many ? stop->size() : 1;
  if (count > kMaxStops) return ApiError::out_of_range("stop", "an array of at most 16 strings");
  for (size_t i = 0; i < count; ++i) {
    const Json& item = many ? (*stop)[i] : *stop;
    const std::string param = many ? fmt::format("stop[{}]", i) : "stop";
    if (!item.is_string()) return ApiError::invalid_type(param, "a string");
    const std::string text = item.get<std::string>();
    if (text.empty() || text.size() > kMaxStopBytes) return ApiError::out_of_range(param, "a string of 1 to 256 bytes");
    stops.push_back(text);
  }
  return stops;
}

// A key is a token id, or text that is exactly one token.
Checked<std::vector<std::pair<int32_t, float>>> read_logit_bias(const Json& body, const Backend& backend) {
  std::vector<std::pair<int32_t, float>> biases;
  const Json* object = find_field(body, "logit_bias");
  if (!object) return biases;
  for (const auto& [key, value] : object->items()) {
    const std::string param = "logit_bias." + key.substr(0, 64);
    if (!value.is_number()) return ApiError::invalid_type(param, "a number");
    const double bias = value.get<double>();
    if (!(bias >= -100 && bias <= 100)) return ApiError::out_of_range(param, "at least -100 and at most 100");
    int64_t id = -1;
    const auto [end, failed] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (key.empty() || failed != std::errc() || end != key.data() + key.size()) {
      const auto tokenizer = backend.tokenizer();
      // A key that must be several tokens is not tokenized: it may be megabytes.
      const std::vector<int32_t> ids = tokenizer && (*tokenizer)->least_tokens(key) <= 1 ? (*tokenizer)->encode(key, {.parse_special = true, .add_special = false}) : std::vector<int32_t>{};
      if (ids.size() != 1) return ApiError::unsupported_value(param, "the key is neither a token id nor the text of one token");
      id = ids[0];
    }
    if (id < 0 || id >= backend.vocab_size())
      return ApiError::out_of_range(param, fmt::format("a token id below {}", backend.vocab_size()));
    biases.emplace_back(static_cast<int32_t>(id), static_cast<float>(bias));
  }
  return biases;
}

engine::Sampling read_sampling(const Json& body, const Backend& backend) {
  engine::Sampling sampling = backend.default_sampling();
  const auto take = [&](const char* name, float& field) { field = static_cast<float>(get_number(body, name, field)); };
  take("temperature", sampling.temperature);
  take("top_p", sampling.top_p);
  take("min_p", sampling.min_p);
  take("typical_p", sampling.typical_p);
  take("repeat_penalty", sampling.repetition_penalty);
  take("repetition_penalty", sampling.repetition_penalty);
  take("presence_penalty", sampling.presence_penalty);
  take("frequency_penalty", sampling.frequency_penalty);
  if (const auto top_k = get_integer(body, "top_k")) sampling.top_k = static_cast<int32_t>(*top_k);
  if (const auto seed = get_integer(body, "seed")) sampling.seed = static_cast<uint64_t>(*seed);
  return sampling;
}

}  // namespace

std::optional<ApiError> check_one_constraint(const Json& body) {
  bool constrained = false;
  for (const char* name : {"regex", "ebnf", "grammar", "json_schema", "response_format"}) {
    const Json* value = find_field(body, name);
    if (!value || (value->is_string() && value->get_ref<const std::string&>().empty())) continue;
    if (value->is_object() && value->value("type", Json()) == "text") continue;
    if (std::exchange(constrained, true)) return ApiError::unsupported_value(name, "only one of regex, ebnf, grammar, json_schema and response_format may be given");
  }
  return std::nullopt;
}

std::optional<ApiError> check_response_format(const Json& body) {
  const Json* format = find_field(body, "response_format");
  if (!format) return std::nullopt;
  static const std::vector<Field> table{{.name = "type", .types = kString, .choices = {"text", "json_object", "json_schema"}, .required = true}};
  if (auto error = check_fields(*format, table, "response_format.")) return error;
  if ((*format)["type"] == "json_schema") {
    static const std::vector<Field> schema_table{{.name = "json_schema", .types = kObject, .required = true}};
    if (auto error = check_fields(*format, schema_table, "response_format.")) return error;
    static const std::vector<Field> inner{{"name", kString, 0, 256}, {"description", kString}, {"schema", kObject | kBoolean}, {"strict", kBoolean}};
    if (auto error = check_fields((*format)["json_schema"], inner, "response_format.json_schema.")) return error;
  }
  if ((*format)["type"] != "text")
    return ApiError::not_supported("response_format '" + (*format)["type"].get<std::string>() + "'", "response_format");
  return std::nullopt;
}

std::optional<ApiError> check_model(const Json& body, const Backend& backend, bool lenient) {
  const std::string name = get_string(body, "model");
  if (name.empty() || lenient || name == backend.model_name()) return std::nullopt;
  ApiError error = ApiError::not_found("the model '" + name + "' does not exist here", "model_not_found");
  error.param = "model";
  return error;
}

Checked<std::vector<int32_t>> read_token_ids(const Json& array, const std::string& param, int32_t vocab_size) {
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    const auto id = as_integer(array[i]);
    if (!id) return ApiError::invalid_type(fmt::format("{}[{}]", param, i), "a token id");
    if (*id < 0 || *id >= vocab_size)
      return ApiError::out_of_range(fmt::format("{}[{}]", param, i), fmt::format("a token id below {}", vocab_size));
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

ApiError context_exceeded(size_t least_tokens, uint32_t context) {
  ApiError error{400, "context_length_exceeded", fmt::format("the prompt of at least {} tokens exceeds the window of {}", least_tokens, context), {}, {}};
  error.extra = Json{{"n_prompt_tokens", least_tokens}, {"n_ctx", context}};
  return error;
}

Checked<uint32_t> fit_to_window(size_t n_prompt, std::optional<int64_t> wanted, uint32_t min_tokens, uint32_t context) {
  const uint64_t least = wanted == 0 ? 0 : std::max<uint64_t>(1, std::min<uint64_t>(min_tokens, wanted ? static_cast<uint64_t>(*wanted) : UINT64_MAX));
  if (n_prompt + least > context) {
    ApiError error{400, "context_length_exceeded",
                   fmt::format("the prompt of {} tokens and at least {} to generate exceed the window of {}", n_prompt, least, context), {}, {}};
    error.extra = Json{{"n_prompt_tokens", n_prompt}, {"n_ctx", context}};
    return error;
  }
  const uint64_t room = context - n_prompt;
  return static_cast<uint32_t>(wanted ? std::min<uint64_t>(static_cast<uint64_t>(*wanted), room) : room);
}

Checked<CommonRequest> read_common(const Json& body, const Backend& backend, const ServerLimits& limits) {
  if (auto error = check_model(body, backend, limits.lenient_model)) return *error;
  CommonRequest common;
  engine::Request& request = common.request;
  request.sampling = read_sampling(body, backend);
  TURBO_CHECKED(request.sampling.logit_bias, read_logit_bias(body, backend));
  TURBO_CHECKED(common.stops, read_stops(body));

  const int64_t n = get_integer(body, "n").value_or(1), most = std::min(backend.max_running(), limits.max_queue);
  if (n < 1 || n > most) return ApiError::out_of_range("n", fmt::format("at least 1 and at most {}", most));
  common.n = static_cast<uint32_t>(n);
  request.min_tokens = static_cast<uint32_t>(get_integer(body, "min_tokens").value_or(0));
  const auto tokenizer = backend.tokenizer();
  if (tokenizer && !get_bool(body, "ignore_eos", false)) {
    const auto ends = (*tokenizer)->end_ids();
    request.end_tokens.assign(ends.begin(), ends.end());
  }
  if (const Json* ids = find_field(body, "stop_token_ids")) {
    TURBO_CHECKED(const std::vector<int32_t> extra, read_token_ids(*ids, "stop_token_ids", backend.vocab_size()));
    request.end_tokens.insert(request.end_tokens.end(), extra.begin(), extra.end());
  }

  request.use_prefix_cache = get_bool(body, "cache_prompt", true);
  request.timeout_ms = limits.request_timeout_ms;
  if (const auto timeout = get_integer(body, "timeout_ms")) request.timeout_ms = static_cast<uint64_t>(*timeout);
  if (const Json* own = find_field(body, "turbo")) {
    if (auto error = check_fields(*own, turbo_fields(), "turbo.")) return *error;
    request.use_drafter = get_string(*own, "drafter") != "off";
    request.draft_slots = static_cast<uint32_t>(get_integer(*own, "draft_tokens").value_or(0));
    if (const auto timeout = get_integer(*own, "timeout_ms")) request.timeout_ms = static_cast<uint64_t>(*timeout);
    const std::string salt = get_string(*own, "cache_salt");
    if (!std::all_of(salt.begin(), salt.end(), [](char c) { return c > ' ' && c < 0x7f; }))
      return ApiError::out_of_range("turbo.cache_salt", "a string of 1 to 128 visible ASCII characters");
    request.cache_salt = salt;
    request.priority = static_cast<int32_t>(get_integer(*own, "priority").value_or(0));
    common.answer.timings = get_bool(*own, "timings", false);
  }

  Answer& answer = common.answer;
  answer.model = backend.model_name();
  answer.fingerprint = limits.fingerprint;
  answer.created = static_cast<int64_t>(std::time(nullptr));
  answer.stream = get_bool(body, "stream", false);
  if (const Json* options = find_field(body, "stream_options"); options) {
    static const std::vector<Field> table{{"include_usage", kBoolean}};
    if (auto error = check_fields(*options, table, "stream_options.")) return *error;
    answer.include_usage = answer.stream && get_bool(*options, "include_usage", false);
  }
  return common;
}

}  // namespace turbo::server
