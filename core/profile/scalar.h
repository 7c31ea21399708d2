// Text to typed values. Independent of the locale; each refusal says which forms are accepted.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "profile/keys.h"

namespace turbo::profile {

struct Scalar {
  std::string text;
  bool quoted = false;  // quoted text is never a number or a boolean
  bool is_null = false;
};

/// "a whole number from 0 to 65535", "true or false", "a size such as 512MiB, ..." for messages and documentation.
std::string accepted_forms(const ValueRule& rule);

/// One scalar by a rule of a scalar kind (not a list or map). The message reads "expected .. but found ..".
Result<Value> read_scalar(const ValueRule& rule, const Scalar& scalar);

/// `text` with each ${NAME} replaced from the environment and a leading "~/" by $HOME. An unset name is an error.
Result<std::string> expand_environment(const std::string& text);

/// 512MiB and 60s as they are written in documentation.
std::string format_bytes(uint64_t bytes);
std::string format_duration_ms(uint64_t milliseconds);

}  // namespace turbo::profile
