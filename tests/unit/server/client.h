// A bare HTTP client over a blocking socket: sends any bytes, reads one answer at a time, and a server fixture.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fake_backend.h"
#include "server/server.h"

namespace turbo::server::testing {

struct Reply {
  int status = 0;  // 0: the connection closed or nothing came in time
  std::string head;
  std::map<std::string, std::string> headers;  // lower-case names
  std::string body;                            // chunks joined
  bool complete = false;
  Json json() const { return Json::parse(body, nullptr, false); }
  std::string error_code() const;
  std::string error_param() const;
};

class Client {
 public:
  explicit Client(uint16_t port, int receive_buffer = 0);
  ~Client();
  Client(Client&& other) noexcept : fd_(std::exchange(other.fd_, -1)), buffer_(std::move(other.buffer_)) {}

  bool send(std::string_view bytes);
  void half_close();
  void close();
  void reset();  // abruptly
  Reply read(bool head_only = false);
  /// More of what arrives, or empty when the peer closed or `timeout_ms` passed.
  std::string receive(int timeout_ms = 20000);
  bool closed(int timeout_ms = 20000);  // the peer closes without another byte

  Reply request(const std::string& method, const std::string& path, const std::string& body = {}, const std::string& headers = {});

 private:
  int fd_;
  std::string buffer_;
};

std::string request_text(const std::string& method, const std::string& path, const std::string& body = {}, const std::string& headers = {});

/// Data of the events of a stream's body; comments are left out.
std::vector<std::string> events(const std::string& body);

class ServerTest : public ::testing::Test {
 protected:
  void start() {
    profile.server.port = 0;
    auto made = Server::start(profile);
    ASSERT_TRUE(made) << made.status().message();
    server = std::move(*made);
    if (ready) server->attach(backend);
  }
  void SetUp() override { start(); }
  void restart() {
    server.reset();
    start();
  }
  Client connect(int receive_buffer = 0) { return Client(server->port(), receive_buffer); }
  Reply get(const std::string& path, const std::string& headers = {}) { return connect().request("GET", path, {}, headers); }
  Reply post(const std::string& path, const Json& body, const std::string& headers = {}) {
    return connect().request("POST", path, body.dump(), headers);
  }
  Reply post_text(const std::string& path, const std::string& body) { return connect().request("POST", path, body); }
  static Json chat(const std::string& text = "Hi") { return Json{{"messages", {{{"role", "user"}, {"content", text}}}}}; }
  void say(const std::string& text) {
    backend->script = [text](const engine::Request&) { return Script{bytes_of(text)}; };
  }

  profile::Profile profile;
  bool ready = true;
  std::shared_ptr<FakeBackend> backend = std::make_shared<FakeBackend>();
  std::unique_ptr<Server> server;
};

}  // namespace turbo::server::testing
