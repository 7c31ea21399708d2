// Sockets and HTTP/1.1 framing: accepts, reads bounded requests, writes answers. A few I/O threads; each connection's
// work is serialised on its strand. Handlers must return soon: one that computes holds an I/O thread.
//
// When is a client gone? A reset or a failed write says so. The end of its input alone does not: a client may shut down
// its sending side and wait for the answer, and it gets it. Since a client that closed altogether looks the same until
// something is written, the transport then sends it a little that changes nothing: the next byte of "HTTP/1.1 ", with
// which every answer begins, or a stream's filler, at once and then at growing intervals. The system of a client that
// is gone answers with a reset, so leaving cancels within a round trip. docs/decisions has the reasons.
//
// Files: transport.cpp accepts, connection*.cpp read and write one client's socket, socket_exchange.cpp frames answers.
// No other file sees Asio or Beast.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "server/http.h"

namespace turbo::server {

struct TransportLimits {
  uint64_t body_bytes = 32ull << 20;
  uint64_t header_bytes = 32ull << 10;
  uint32_t header_count = 100;
  uint64_t request_line_bytes = 8ull << 10;
  uint64_t idle_timeout_ms = 60000;
  uint32_t max_connections = 1024;
  uint64_t stream_queue_bytes = 1ull << 20;  // unread by a stream's client before it is given up
  uint64_t bodies_bytes = 512ull << 20;      // request bodies being read or held, all connections together
  uint32_t threads = 2;
};

class Transport {
 public:
  /// Binds and serves at once. `host` is an address or a name; port 0 takes a free one.
  static Result<std::unique_ptr<Transport>> start(const std::string& host, uint16_t port, const TransportLimits& limits,
                                                  ExchangeHandler handler);
  /// Closes every connection (their exchanges hear on_gone) and joins the threads.
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  uint16_t port() const;
  /// The bound address in the form a URL takes ("127.0.0.1", "[::1]").
  const std::string& address() const;
  bool is_loopback() const;

  /// Waits until no exchange is unanswered; false after `timeout_ms`.
  bool wait_idle(uint64_t timeout_ms);
  /// Ends in order: no new connections, idle ones closed, the others once their answer is complete and written; after
  /// `timeout_ms` they are closed all the same.
  void finish(uint64_t timeout_ms);
  /// Closes the listening socket and every connection at once.
  void close();

  struct Impl;  // transport_impl.h

 private:
  explicit Transport(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace turbo::server
