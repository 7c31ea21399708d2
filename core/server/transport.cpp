// Listening, accepting and the I/O threads. Connections do the rest.
#include "server/transport.h"

#include <spdlog/spdlog.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>

#include <algorithm>

#include "server/connection.h"

namespace turbo::server {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr const char* kAddressHint =
    "server.host must be an address of this machine: 127.0.0.1, one that `ip address` shows, or 0.0.0.0 for all of them";

std::string listen_hint(const error_code& ec, uint16_t port) {
  if (ec == asio::error::address_in_use) return "choose another server.port, or stop the program that uses it";
  if (ec == asio::error::access_denied && port != 0 && port < 1024)
    return "ports below 1024 need a privilege; choose a server.port from 1024 up";
  return kAddressHint;
}

}  // namespace

Status Transport::Impl::bind(const std::string& host, uint16_t wanted) {
  error_code ec;
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(host, std::to_string(wanted), tcp::resolver::passive, ec);
  if (ec || found.empty())
    return error(Code::invalid_argument, "server.host: cannot resolve '{}': {}", host, ec.message())
        .with_hint(kAddressHint);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), ec);
  if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor.bind(endpoint, ec);
  if (!ec) acceptor.listen(asio::socket_base::max_listen_connections, ec);
  if (ec)
    return error(Code::resource_exhausted, "cannot listen on {}:{}: {}", host, wanted, ec.message())
        .with_hint(listen_hint(ec, wanted));
  const tcp::endpoint bound = acceptor.local_endpoint(ec);
  port = bound.port();
  loopback = bound.address().is_loopback();
  address = bound.address().is_v6() ? "[" + bound.address().to_string() + "]" : bound.address().to_string();
  return Status::ok();
}

void Transport::Impl::accept() {
  acceptor.async_accept(asio::make_strand(io), [this](error_code ec, tcp::socket socket) {
    if (ec == asio::error::operation_aborted) return;
    if (ec) {  // out of descriptors, most likely: wait for some to be freed
      if (!std::exchange(refusing, true)) spdlog::warn("connections cannot be accepted: {} (is the limit of open files too small?)", ec.message());
      retry.expires_after(std::chrono::milliseconds(100));
      retry.async_wait([this](error_code stopped) { if (!stopped) accept(); });
      return;
    }
    refusing = false;
    std::shared_ptr<Connection> connection;
    {
      std::lock_guard lock(mutex);
      if (closing) return;
      if (connections.size() < limits.max_connections) {
        connection = std::make_shared<Connection>(*this, std::move(socket));
        connections.emplace(connection.get(), connection);
        ++n_open;
      }
    }
    if (connection) {
      asio::post(connection->executor(), [connection] { connection->start(); });
    } else {
      static constexpr std::string_view kFull =
          "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json; charset=utf-8\r\nretry-after: 1\r\n"
          "connection: close\r\ncontent-length: 134\r\n\r\n"
          "{\"error\":{\"message\":\"too many connections: try again later\",\"type\":\"unavailable_error\",\"param\":null,"
          "\"code\":\"overloaded\",\"status\":503}}";
      error_code ignored;
      socket.non_blocking(true, ignored);
      socket.write_some(asio::buffer(kFull.data(), kFull.size()), ignored);
    }
    accept();
  });
}

void Transport::Impl::close_all(bool when_answered) {
  std::vector<std::shared_ptr<Connection>> open;
  {
    std::lock_guard lock(mutex);
    closing = true;
    for (const auto& [key, weak] : connections)
      if (auto connection = weak.lock()) open.push_back(std::move(connection));
  }
  asio::post(io, [this] {
    error_code ignored;
    acceptor.close(ignored);
    retry.cancel();
  });
  for (const auto& connection : open)
    asio::post(connection->executor(), [connection, when_answered] { when_answered ? connection->close_when_answered() : connection->close(); });
}

Transport::Transport(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Transport>> Transport::start(const std::string& host, uint16_t port, const TransportLimits& limits,
                                                    ExchangeHandler handler) {
  try {
    auto impl = std::make_shared<Impl>(limits, std::move(handler));
    TURBO_RETURN_IF_ERROR(impl->bind(host, port));
    impl->accept();
    std::unique_ptr<Transport> transport(new Transport(impl));
    for (uint32_t i = 0; i < std::max(1u, limits.threads); ++i)
      impl->threads.emplace_back([io = &impl->io, guard = asio::make_work_guard(impl->io)] {
        for (;;) {
          try {
            io->run();
            return;
          } catch (const std::exception& e) {  // a handler's failure ends that handler only
            spdlog::error("server: {}", e.what());
          }
        }
      });
    return transport;
  } catch (const std::exception& e) {
    return error(Code::internal, "cannot start the server: {}", e.what());
  }
}

Transport::~Transport() {
  close();
  wait_idle(10000);
  impl_->io.stop();
  for (std::thread& thread : impl_->threads) thread.join();
}

uint16_t Transport::port() const { return impl_->port; }
const std::string& Transport::address() const { return impl_->address; }
bool Transport::is_loopback() const { return impl_->loopback; }

bool Transport::wait_idle(uint64_t timeout_ms) {
  std::unique_lock lock(impl_->mutex);
  return impl_->idle.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return impl_->n_exchanges.load() == 0; });
}

void Transport::finish(uint64_t timeout_ms) {
  impl_->close_all(/*when_answered=*/true);
  {
    std::unique_lock lock(impl_->mutex);
    impl_->idle.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return impl_->n_open == 0; });
  }
  close();
}

void Transport::close() { impl_->close_all(/*when_answered=*/false); }

}  // namespace turbo::server
