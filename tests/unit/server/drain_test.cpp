// A drain that has to cut streams short still ends each of them as HTTP asks for.
#include <chrono>
#include <thread>

#include "client.h"

namespace turbo::server::testing {
namespace {

class Drain : public ServerTest {
 protected:
  void SetUp() override {
    backend->script = [](const engine::Request&) { return Script{bytes_of("abcdefgh"), false, true}; };
    start();
  }
  std::string stream_request() const {
    Json body = chat();
    body["stream"] = true;
    return request_text("POST", "/v1/chat/completions", body.dump());
  }
};

TEST_F(Drain, StreamsCutShortEndWhole) {
  backend->step_us = 500;
  for (int round = 0; round < 3; ++round) {
    constexpr int kClients = 40;
    std::vector<Client> clients;
    for (int i = 0; i < kClients; ++i) {
      clients.push_back(connect());
      clients.back().send(stream_request());
    }
    ASSERT_TRUE(backend->wait_submitted(kClients));
    std::vector<Reply> replies(kClients);
    std::vector<std::thread> readers;
    for (int i = 0; i < kClients; ++i) readers.emplace_back([&, i] { replies[i] = clients[i].read(); });
    EXPECT_FALSE(server->drain(100));
    for (std::thread& reader : readers) reader.join();
    int n_complete = 0;
    for (const Reply& reply : replies) {
      const std::vector<std::string> parts = events(reply.body);
      n_complete += reply.complete && !parts.empty() && parts.back().find("\"draining\"") != std::string::npos;
    }
    EXPECT_EQ(n_complete, kClients);
    backend = std::make_shared<FakeBackend>();
    backend->step_us = 500;
    backend->script = [](const engine::Request&) { return Script{bytes_of("abcdefgh"), false, true}; };
    restart();
  }
}

TEST_F(Drain, WaitsForSlowReadersButNotForEver) {
  // Answers larger than what the system buffers for a client that does not read.
  const std::string body = Json{{"content", std::string(4 << 20, 'a')}}.dump();
  const auto ask = [&] {
    Client client = connect(32768);
    client.send(request_text("POST", "/tokenize", body));
    EXPECT_EQ(client.read(true).status, 200);  // the rest waits
    return client;
  };
  Client slow = ask(), stuck = ask();
  const auto began = std::chrono::steady_clock::now();
  std::thread drain([&] { server->drain(5000); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::string seen;
  for (std::string more; !(more = slow.receive(3000)).empty();) seen += more;
  drain.join();
  EXPECT_TRUE(seen.ends_with(",\"max_model_len\":2048}")) << seen.size() << " bytes";
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(4));
}

TEST_F(Drain, IdleConnectionsDoNotHoldItUp) {
  Client idle = connect(), half = connect();
  EXPECT_EQ(idle.request("GET", "/health").status, 200);
  half.send("GET /health HTTP/1.1\r\nHo");
  const auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(server->drain(5000));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1));
  EXPECT_TRUE(idle.closed());
  EXPECT_TRUE(half.closed());
}

}  // namespace
}  // namespace turbo::server::testing
