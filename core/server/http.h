// HTTP as the rest of the server sees it: plain requests and answers, no socket types.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace turbo::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

/// Why the transport could not read a request as HTTP allows it; the connection closes after the answer.
struct Refusal {
  int status = 400;
  std::string code;
  std::string message;
};

struct HttpRequest {
  std::string method;  // as sent
  std::string target;  // as sent
  Headers headers;     // names in lower case, in order
  std::string body;
  std::string peer;    // the client's address
  std::string id;      // the client's x-request-id, or one made up
  std::optional<Refusal> refusal;

  /// The first header of that lower-case name, or null.
  const std::string* header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json; charset=utf-8";
  std::string body;
  Headers headers;
};

/// One request being answered. Everything but post() is called on the exchange's own thread order (its strand).
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual HttpRequest& request() = 0;
  /// Added to whatever answer follows.
  virtual void add_header(std::string name, std::string value) = 0;
  /// The whole answer. Exactly one of respond() and start_stream() is called, once.
  virtual void respond(HttpResponse response) = 0;
  /// Head of an answer of unknown length. `response.body` is a filler: a part that means nothing to the client, which
  /// may be written between others to find out whether the client is still there; empty when there is none.
  virtual void start_stream(HttpResponse response) = 0;
  /// Queue a part. Ignored once the client is gone; a client that leaves too much unread is gone.
  virtual void write(std::string_view part) = 0;
  virtual void end_stream() = 0;
  /// One timer; setting it again replaces it, and the end of the exchange stops it.
  virtual void set_timer(uint64_t ms, std::function<void()> action) = 0;
  /// Called once if the client leaves before the answer is complete. Setting it again replaces it.
  virtual void on_gone(std::function<void()> action) = 0;
  /// Called with the status when an answer begins.
  virtual void on_answer(std::function<void(int status)> action) = 0;
  /// [any thread] Run an action in this exchange's order.
  virtual void post(std::function<void()> action) = 0;
};

using ExchangeHandler = std::function<void(std::shared_ptr<Exchange>)>;

/// "%2F" and the like decoded; nothing when malformed or when it hides a NUL.
std::optional<std::string> percent_decode(std::string_view text);

/// 24 random hexadecimal digits.
std::string random_id();

const char* reason_phrase(int status);

}  // namespace turbo::server
