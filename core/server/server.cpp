#include "server/server.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "server/app.h"
#include "server/descriptors.h"
#include "server/transport.h"

namespace turbo::server {
namespace {

constexpr uint64_t kFlushMs = 2000;      // for answers to be written after the engine has ended
constexpr uint64_t kGoneMs = 10000;      // for exchanges to hear that their client is gone
constexpr uint64_t kLetGoMs = 30000;     // a cancelled request ends within one step

TransportLimits transport_limits(const profile::Profile::Server& server) {
  TransportLimits limits;
  limits.body_bytes = server.body_limit_bytes;
  limits.header_bytes = server.header_limit_bytes;
  limits.header_count = static_cast<uint32_t>(server.header_limit_count);
  limits.request_line_bytes = server.request_line_limit_bytes;
  limits.idle_timeout_ms = server.idle_timeout_ms;
  limits.max_connections = affordable_connections(static_cast<uint32_t>(server.max_connections));
  limits.threads = std::clamp(std::thread::hardware_concurrency() / 4, 2u, 4u);
  return limits;
}

// Found wrong at start, not by the first client that saves.
Status check_prefix_dir(const std::filesystem::path& folder) {
  if (folder.empty()) return Status::ok();
  std::error_code ec;
  if (!std::filesystem::is_directory(folder, ec))
    return error(Code::invalid_argument, "server.prefix_dir: '{}' is not a folder", folder.string()).with_hint("create it, or name another one");
  if (::access(folder.c_str(), R_OK | W_OK | X_OK) != 0)
    return error(Code::invalid_argument, "server.prefix_dir: '{}': {}", folder.string(), std::strerror(errno))
        .with_hint("let this user read and write there, or name another folder");
  return Status::ok();
}

}  // namespace

struct Server::Impl {
  explicit Impl(const profile::Profile& profile) : app(profile) {}
  App app;
  std::unique_ptr<Transport> transport;
  bool drained = false;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Server>> Server::start(const profile::Profile& profile) {
  const profile::Profile::Server& settings = profile.server;
  TURBO_RETURN_IF_ERROR(check_prefix_dir(settings.prefix_dir));
  auto impl = std::make_unique<Impl>(profile);
  // Connections that come before the rules are set wait for the gate.
  auto gate = std::make_shared<std::mutex>();
  std::unique_lock hold(*gate);
  TURBO_ASSIGN(impl->transport, Transport::start(settings.host, static_cast<uint16_t>(settings.port), transport_limits(settings),
                                                 [app = &impl->app, gate](std::shared_ptr<Exchange> exchange) {
                                                   { std::lock_guard wait(*gate); }
                                                   app->handle(exchange);
                                                 }));
  impl->app.set_access({impl->transport->is_loopback(), settings.host, settings.cors_origins, settings.api_keys});
  if (!impl->transport->is_loopback() && settings.api_keys.empty())
    spdlog::warn("the server listens beyond this machine without an API key: anyone who reaches it may use it (server.api_keys)");
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

void Server::attach(std::shared_ptr<Backend> backend) { impl_->app.attach(std::move(backend)); }

uint16_t Server::port() const { return impl_->transport->port(); }

std::string Server::url() const { return fmt::format("http://{}:{}", impl_->transport->address(), port()); }

bool Server::drain(uint64_t timeout_ms) {
  if (impl_->drained) return true;
  impl_->drained = true;
  impl_->app.begin_drain();
  const auto began = std::chrono::steady_clock::now();
  bool clean = impl_->transport->wait_idle(timeout_ms);
  const uint64_t waited_ms = static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began).count());
  // The last answer may leave a little before the engine has put its request away.
  const uint64_t rest_ms = clean && waited_ms < timeout_ms ? timeout_ms - waited_ms : 0;
  if (const auto backend = impl_->app.backend()) clean = backend->drain(rest_ms) && clean;
  impl_->transport->finish(kFlushMs);
  return clean;
}

Server::~Server() {
  impl_->transport->close();  // every exchange hears that its client is gone and cancels
  impl_->transport->wait_idle(kGoneMs);
  impl_->app.stop_work();
  if (!impl_->app.live().wait_none(kLetGoMs)) spdlog::error("the engine did not end a cancelled request");
  impl_->transport.reset();
}

}  // namespace turbo::server
