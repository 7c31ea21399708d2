#include "server/api_error.h"

namespace turbo::server {
namespace {

const char* type_of(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 409: return "conflict_error";
    case 429: return "rate_limit_error";
    case 500: return "server_error";
    case 501: return "not_supported_error";
    case 503: return "unavailable_error";
    default: return "invalid_request_error";
  }
}

}  // namespace

ApiError ApiError::missing(const std::string& param) { return {400, "missing_field", param + ": this field is required", param, {}}; }
ApiError ApiError::invalid_type(const std::string& param, const std::string& expected) {
  return {400, "invalid_type", (param.empty() ? "the body" : param) + ": must be " + expected, param, {}};
}
ApiError ApiError::out_of_range(const std::string& param, const std::string& expected) {
  return {400, "out_of_range", param + ": must be " + expected, param, {}};
}
ApiError ApiError::unsupported_value(const std::string& param, const std::string& message) {
  return {400, "unsupported_value", param + ": " + message, param, {}};
}
ApiError ApiError::not_supported(const std::string& what, const std::string& param) {
  return {501, "not_supported", what + " is not supported by this server", param, {}, false};
}
ApiError ApiError::not_found(const std::string& message, const std::string& code) { return {404, code, message, {}, {}}; }
ApiError ApiError::loading() { return {503, "loading", "the model is being loaded: try again soon", {}, {}}; }
ApiError ApiError::draining() { return {503, "draining", "the server is shutting down", {}, {}}; }
ApiError ApiError::unavailable(const Status& failure) {
  return {503, code_name(failure.code()), "the engine has stopped: " + failure.message(), {}, {}};
}
ApiError ApiError::internal(const std::string& message) { return {500, "internal", message, {}, {}}; }

ApiError ApiError::from_engine(const Status& status) {
  const std::string text = status.hint().empty() ? status.message() : status.message() + "; " + status.hint();
  switch (status.code()) {
    case Code::invalid_argument: return {400, "invalid_request", text, {}, {}};
    case Code::resource_exhausted: return {429, "queue_full", text, {}, {}};
    case Code::cancelled: return draining();
    case Code::unsupported: return {501, "not_supported", text, {}, {}, false};
    case Code::device_lost: return {500, "device_lost", "the compute device was lost", {}, {}, false};
    default: return internal("the request failed inside the engine");
  }
}

Json error_json(const ApiError& error) {
  Json body{{"message", error.message},
            {"type", type_of(error.status)},
            {"param", error.param.empty() ? Json(nullptr) : Json(error.param)},
            {"code", error.code.empty() ? Json(nullptr) : Json(error.code)},
            {"status", error.status}};
  if (error.extra.is_object())
    for (const auto& [name, value] : error.extra.items()) body[name] = value;
  return Json{{"error", std::move(body)}};
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response;
  response.status = error.status;
  response.body = to_text(error_json(error));
  if (error.status == 401) response.headers.emplace_back("www-authenticate", "Bearer");
  if (error.status == 429 || error.status == 503) response.headers.emplace_back("retry-after", "1");
  if (error.status == 429) response.headers.emplace_back("retry-after-ms", "500");
  if (!error.retry) response.headers.emplace_back("x-should-retry", "false");
  return response;
}

}  // namespace turbo::server
