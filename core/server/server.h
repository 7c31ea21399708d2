// The HTTP server: opens its socket before the model is there, serves it once attached, drains on request.
//
// Made, attached, drained and destroyed by one thread; requests run on its own I/O threads and on the engine's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "profile/profile.h"
#include "server/backend.h"

namespace turbo::server {

class Server {
 public:
  /// Binds server.host and server.port; every route answers 503 `loading` from then on. invalid_argument when the
  /// address cannot be used.
  static Result<std::unique_ptr<Server>> start(const profile::Profile& profile);
  /// Ready: requests are served from this model.
  void attach(std::shared_ptr<engine::Runtime> runtime);
  void attach(std::shared_ptr<Backend> backend);

  uint16_t port() const;
  std::string url() const;  // "http://127.0.0.1:30000"

  /// No new work (503 `draining`), waits up to `timeout_ms` for what runs, then cancels it. Closes everything; true when
  /// all ended by itself.
  bool drain(uint64_t timeout_ms);
  /// Cancels what runs and waits until the engine has let go of it.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace turbo::server
