// Reading requests: Beast parses, limits are checked here before anything is held for the client.
#include <spdlog/spdlog.h>

#include <boost/beast/http/error.hpp>

#include <algorithm>

#include "server/connection.h"
#include "server/socket_exchange.h"

namespace turbo::server {
namespace {

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](unsigned char x, unsigned char y) {
           return std::tolower(x) == std::tolower(y);
         });
}

enum class Expectation { none, go_ahead, unknown };

// Clients of HTTP/1.0 have none, whatever they send.
template <typename Message>
Expectation expectation_of(const Message& message) {
  Expectation found = Expectation::none;
  if (message.version() < 11) return found;
  for (const auto& field : message) {
    if (field.name() != boost::beast::http::field::expect) continue;
    if (!equals_ignoring_case({field.value().data(), field.value().size()}, "100-continue")) return Expectation::unknown;
    found = Expectation::go_ahead;
  }
  return found;
}

bool is_visible_id(std::string_view id) {
  return !id.empty() && id.size() <= 128 && std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace

namespace http = boost::beast::http;
using boost::system::error_code;

void Connection::parse() {
  if (closed_) return;
  if (!parser_) {
    // Blank lines between requests are allowed.
    while (buffer_.size() && (*static_cast<const char*>(buffer_.data().data()) == '\r' ||
                              *static_cast<const char*>(buffer_.data().data()) == '\n'))
      buffer_.consume(1);
    if (buffer_.size() == 0) {
      set_deadline(Waiting::idle, limits_.idle_timeout_ms);
      return read_more();
    }
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(limits_.header_bytes + limits_.request_line_bytes));
    parser_->body_limit(limits_.body_bytes);
    parser_->eager(false);
    header_checked_ = line_parsed_ = false;
    request_began_ = std::chrono::steady_clock::now();
    set_deadline(Waiting::request, limits_.idle_timeout_ms);
  }
  if (!header_checked_ && !parse_header()) return;
  if (!parser_->is_done() && !parse_body()) return;
  dispatch();
}

// False: more bytes are awaited, or the request was refused.
bool Connection::parse_header() {
  error_code ec;
  const size_t consumed = parser_->put(buffer_.data(), ec);
  buffer_.consume(consumed);
  line_parsed_ = line_parsed_ || consumed > 0;  // Beast takes whole lines, the request line first
  if (ec == http::error::need_more) {
    const std::string_view text(static_cast<const char*>(buffer_.data().data()), buffer_.size());
    if (!line_parsed_ && text.size() > limits_.request_line_bytes && text.find('\n') > limits_.request_line_bytes) {
      refuse(414, "request_line_too_long", fmt::format("the request line is longer than {} bytes", limits_.request_line_bytes));
      return false;
    }
    if (text.size() > limits_.header_bytes + limits_.request_line_bytes) {
      refuse_parse(http::error::header_limit);
      return false;
    }
    read_more();
    return false;
  }
  if (ec) {
    refuse_parse(ec);
    return false;
  }
  header_checked_ = true;
  return check_header();
}

bool Connection::check_header() {
  const auto& message = parser_->get();
  const Expectation expectation = expectation_of(message);
  size_t n_fields = 0, bytes = 0;
  for (const auto& field : message) {
    ++n_fields;
    bytes += field.name_string().size() + field.value().size() + 4;
  }
  if (message.method_string().size() + message.target().size() + 10 > limits_.request_line_bytes)
    refuse(414, "request_line_too_long", fmt::format("the request line is longer than {} bytes", limits_.request_line_bytes));
  else if (bytes > limits_.header_bytes || n_fields > limits_.header_count)
    refuse_parse(http::error::header_limit);
  else if (message.find(http::field::transfer_encoding) != message.end() &&
           !equals_ignoring_case({message[http::field::transfer_encoding].data(), message[http::field::transfer_encoding].size()}, "chunked"))
    refuse(400, "invalid_http", "only the chunked transfer encoding is understood");
  else if (message.version() >= 11 && message.count(http::field::host) != 1)
    refuse(400, "invalid_http", "exactly one Host header is needed");
  else if (expectation == Expectation::unknown)
    refuse(417, "expectation_failed", "the only expectation that can be met is 100-continue");
  else {
    if (expectation == Expectation::go_ahead && !parser_->is_done() && buffer_.size() == 0)
      send("HTTP/1.1 100 Continue\r\n\r\n");
    parser_->eager(true);
    return true;
  }
  return false;
}

bool Connection::parse_body() {
  const auto reserve = [&](uint64_t bytes) {
    if (bytes > held_body_bytes_) hold_body(bytes);
    return owner_.body_bytes.load() <= limits_.bodies_bytes + limits_.body_bytes;
  };
  while (buffer_.size()) {
    error_code ec;
    const size_t n = parser_->put(buffer_.data(), ec);
    buffer_.consume(n);
    if (ec && ec != http::error::need_more) {
      refuse_parse(ec);
      return false;
    }
    if (!reserve(parser_->get().body().size())) {
      refuse(503, "overloaded", "too many request bodies are being read: try again");
      return false;
    }
    if (parser_->is_done()) return true;
    if (n == 0 || ec == http::error::need_more) break;
  }
  if (buffer_.size() > kPipelineBytes) {  // a chunk header or trailer that does not end
    refuse(400, "invalid_http", "a chunk header or trailer is too long");
    return false;
  }
  // Slow is fine, but not for ever.
  if (std::chrono::steady_clock::now() - request_began_ < std::chrono::milliseconds(limits_.idle_timeout_ms * 10))
    set_deadline(Waiting::request, limits_.idle_timeout_ms);
  read_more();
  return false;
}

void Connection::dispatch() {
  auto message = parser_->release();
  parser_.reset();
  HttpRequest request;
  request.method = std::string(message.method_string());
  request.target = std::string(message.target());
  for (const auto& field : message) {
    std::string name(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    request.headers.emplace_back(std::move(name), std::string(field.value()));
  }
  request.body = std::move(message.body());
  boost::system::error_code ignored;
  request.peer = socket_.remote_endpoint(ignored).address().to_string();
  const std::string* id = request.header("x-request-id");
  request.id = id && is_visible_id(*id) ? *id : "req_" + random_id();
  set_deadline(Waiting::nothing, 0);
  exchange_ = std::make_shared<SocketExchange>(shared_from_this(), std::move(request), message.keep_alive(),
                                               message.version() >= 11);
  const auto exchange = exchange_;
  owner_.handler(exchange);
  if (closed_ || exchange->over()) return;
  if (input_ended_) probe_peer(kFirstProbeMs);
  else read_more();  // notices the client leaving
}

void Connection::refuse_parse(error_code ec) {
  if (ec == http::error::header_limit)
    return refuse(431, "headers_too_large", fmt::format("headers are limited to {} bytes and {} fields", limits_.header_bytes, limits_.header_count));
  if (ec == http::error::body_limit)
    return refuse(413, "body_too_large", fmt::format("the body is larger than {} bytes", limits_.body_bytes));
  refuse(400, "invalid_http", "malformed HTTP request: " + ec.message());
}

void Connection::refuse(int status, std::string code, std::string message) {
  parser_.reset();
  buffer_.consume(buffer_.size());
  HttpRequest request;
  request.id = "req_" + random_id();
  request.refusal = Refusal{status, std::move(code), std::move(message)};
  set_deadline(Waiting::nothing, 0);
  lingered_ = 0;
  exchange_ = std::make_shared<SocketExchange>(shared_from_this(), std::move(request), false, true);
  owner_.handler(exchange_);
}

}  // namespace turbo::server
