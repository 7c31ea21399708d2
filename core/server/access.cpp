#include "server/access.h"

#include <algorithm>

namespace turbo::server {

Target split_target(std::string_view target) {
  target = target.substr(0, target.find_first_of("?#"));
  const size_t scheme = target.find("://");
  if (scheme == target.npos || target.front() == '/') return {std::nullopt, target};
  const std::string_view rest = target.substr(scheme + 3);
  const size_t slash = rest.find('/');
  return {rest.substr(0, slash), slash == rest.npos ? std::string_view("/") : rest.substr(slash)};
}

namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

// "localhost:8080" -> "localhost", "[::1]:80" -> "::1", "user:word@name" -> "name"
std::string host_name(std::string_view authority) {
  if (const size_t at = authority.rfind('@'); at != authority.npos) authority.remove_prefix(at + 1);
  if (!authority.empty() && authority.front() == '[') {
    const size_t end = authority.find(']');
    return lower(authority.substr(1, end == authority.npos ? authority.npos : end - 1));
  }
  return lower(authority.substr(0, authority.find(':')));
}

// Whom the request is for: an absolute target counts before the Host header. Nothing in HTTP/1.0.
std::optional<std::string_view> authority_of(const HttpRequest& request) {
  if (const auto authority = split_target(request.target).authority) return authority;
  if (const std::string* host = request.header("host")) return *host;
  return std::nullopt;
}

bool is_loopback_name(const std::string& name) {
  if (name == "localhost" || name == "::1" || name.ends_with(".localhost")) return true;
  // Only a literal address: "127.evil.example" is a name.
  return name.starts_with("127.") && std::count(name.begin(), name.end(), '.') == 3 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c) || c == '.'; });
}

bool equal_in_constant_time(const std::string& secret, std::string_view given) {
  unsigned difference = secret.size() == given.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(secret.empty() ? 0 : secret[i % secret.size()]);
  return difference == 0;
}

}  // namespace

std::optional<ApiError> check_host(const HttpRequest& request, const AccessRules& rules) {
  if (!rules.loopback) return std::nullopt;
  const auto authority = authority_of(request);
  if (!authority) return std::nullopt;  // HTTP/1.0; browsers always send one
  const std::string name = host_name(*authority);
  if (is_loopback_name(name) || name == lower(rules.host)) return std::nullopt;
  return ApiError{403, "host_not_allowed", "the Host header or the target names another machine than this one", {}, {}};
}

bool origin_allowed(const HttpRequest& request, const AccessRules& rules) {
  const std::string* origin = request.header("origin");
  if (!origin) return true;
  for (const std::string& allowed : rules.origins)
    if (allowed == "*" || lower(allowed) == lower(*origin)) return true;
  const size_t scheme = origin->find("://");
  if (scheme == std::string::npos) return false;  // "null": a sandboxed or local page
  const std::string_view authority = std::string_view(*origin).substr(scheme + 3);
  const auto own = authority_of(request);
  return is_loopback_name(host_name(authority)) || (own && lower(authority) == lower(*own));
}

namespace {

std::string_view given_key(const HttpRequest& request) {
  std::string_view given;
  if (const std::string* header = request.header("authorization")) {
    if (lower(std::string_view(*header).substr(0, 7)) == "bearer ") given = std::string_view(*header).substr(7);
  }
  if (const std::string* header = request.header("x-api-key"); header && given.empty()) given = *header;
  return given;
}

}  // namespace

uint64_t client_of(const HttpRequest& request, const AccessRules& rules) {
  return std::hash<std::string_view>()(rules.keys.empty() ? std::string_view(request.peer) : given_key(request));
}

bool key_valid(const HttpRequest& request, const AccessRules& rules) {
  const std::string_view given = given_key(request);
  bool valid = false;
  for (const std::string& key : rules.keys) valid |= !key.empty() && equal_in_constant_time(key, given);
  return valid;
}

}  // namespace turbo::server
