// Who may call: Host and Origin checks against pages of other sites, and API keys. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"
#include "server/http.h"

namespace turbo::server {

/// A request's target taken apart. Views into it.
struct Target {
  std::optional<std::string_view> authority;  // of the absolute form "http://host:port/path"
  std::string_view path;                      // without query and fragment
};
Target split_target(std::string_view target);

struct AccessRules {
  bool loopback = true;            // bound to loopback: other Host names are a DNS-rebinding page
  std::string host;                // the profile's own name, always allowed
  std::vector<std::string> origins;  // further allowed; "*" = all
  std::vector<std::string> keys;   // empty = open
};

/// Wrong Host, or another host in an absolute target, while bound to loopback.
std::optional<ApiError> check_host(const HttpRequest& request, const AccessRules& rules);
/// Whether a page of the request's Origin may read answers. No Origin header: true.
bool origin_allowed(const HttpRequest& request, const AccessRules& rules);
/// A valid key in Authorization: Bearer or x-api-key. Takes the same time whatever the key is.
bool key_valid(const HttpRequest& request, const AccessRules& rules);

/// Whose request it is, for sharing the machine evenly: by API key where keys are set, else by address.
uint64_t client_of(const HttpRequest& request, const AccessRules& rules);

}  // namespace turbo::server
