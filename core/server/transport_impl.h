// What the connections of one Transport share. Sockets stay inside: only transport*.cpp, connection*.cpp and
// socket_exchange.cpp include this.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "server/transport.h"

namespace turbo::server {

class Connection;

struct Transport::Impl : std::enable_shared_from_this<Transport::Impl> {
  explicit Impl(const TransportLimits& limits, ExchangeHandler handler)
      : limits(limits), handler(std::move(handler)), acceptor(io), retry(io) {}

  Status bind(const std::string& host, uint16_t port);
  void accept();
  void close_all(bool when_answered);
  void exchange_began() { n_exchanges.fetch_add(1); }
  void exchange_ended() {
    std::lock_guard lock(mutex);
    if (n_exchanges.fetch_sub(1) == 1) idle.notify_all();
  }
  void socket_closed() {
    std::lock_guard lock(mutex);
    if (--n_open == 0) idle.notify_all();
  }

  const TransportLimits limits;
  const ExchangeHandler handler;
  std::string address;
  uint16_t port = 0;
  bool loopback = false;

  std::mutex mutex;
  std::condition_variable idle;
  std::unordered_map<Connection*, std::weak_ptr<Connection>> connections;  // guarded by mutex
  bool closing = false;                                                    // guarded by mutex
  uint32_t n_open = 0;  // sockets of connections; guarded by mutex
  std::atomic<uint32_t> n_exchanges{0};
  std::atomic<uint64_t> body_bytes{0};

  // After what connections use in their destructors: the context destroys those that are left.
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor acceptor;
  bool refusing = false;  // accepting fails; only the one pending accept touches it
  boost::asio::steady_timer retry;
  std::vector<std::thread> threads;
};

}  // namespace turbo::server
