// Errors as clients see them (one shape on every route).
#pragma once

#include <string>

#include "base/status.h"
#include "server/http.h"
#include "server/json_body.h"

namespace turbo::server {

struct ApiError {
  int status = 400;
  std::string code;
  std::string message;
  std::string param;  // path of the field, "messages[2].content"; empty = null
  Json extra;         // further members of "error": object or null
  bool retry = true;  // false: x-should-retry: false

  static ApiError missing(const std::string& param);
  static ApiError invalid_type(const std::string& param, const std::string& expected);
  static ApiError out_of_range(const std::string& param, const std::string& expected);
  static ApiError unsupported_value(const std::string& param, const std::string& message);
  static ApiError not_supported(const std::string& what, const std::string& param = {});
  static ApiError not_found(const std::string& message, const std::string& code = "not_found");
  static ApiError loading();
  static ApiError draining();
  /// The engine has stopped for good.
  static ApiError unavailable(const Status& failure);
  static ApiError internal(const std::string& message = "internal error");
  /// A refused submission or a failed request of the engine.
  static ApiError from_engine(const Status& status);
};

/// {"error": {...}}: the body, and the data of an error event.
Json error_json(const ApiError& error);
HttpResponse error_response(const ApiError& error);

}  // namespace turbo::server
