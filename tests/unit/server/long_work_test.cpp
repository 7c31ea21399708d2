// Long tokenizations and renderings: everything else goes on meanwhile, and they are bounded, dropped and drained.
#include <chrono>
#include <latch>
#include <thread>

#include "client.h"

namespace turbo::server::testing {
namespace {

using std::chrono::steady_clock;

// Tokenizing of a text that begins with "slow" waits at a gate.
class LongWork : public ServerTest {
 protected:
  void SetUp() override {
    profile.server.max_queue = 8;
    start();
    backend->on_tokenizer = [this] {
      ++n_at_gate;
      std::unique_lock lock(mutex);
      open_changed.wait(lock, [&] { return open; });
    };
  }
  void TearDown() override {
    open_gate();
    server.reset();  // its workers call what belongs to this class
  }
  void open_gate() {
    std::lock_guard lock(mutex);
    open = true;
    open_changed.notify_all();
  }
  bool wait_at_gate(int n) {
    for (int i = 0; i < 1000 && n_at_gate < n; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return n_at_gate >= n;
  }
  // A body large enough to count as long work.
  static std::string large(size_t bytes = 200000) { return Json{{"content", std::string(bytes, 'a')}}.dump(); }
  Client send_large() {
    Client client = connect();
    client.send(request_text("POST", "/tokenize", large()));
    return client;
  }

  std::atomic<int> n_at_gate{0};
  std::mutex mutex;
  std::condition_variable open_changed;
  bool open = false;  // guarded by mutex
};

TEST_F(LongWork, HealthAndRunningStreamsGoOn) {
  backend->script = [](const engine::Request&) { return Script{bytes_of("abcdefgh"), false, true}; };
  backend->step_us = 1000;
  open_gate();
  Json body = chat();
  body["stream"] = true;
  Client stream = connect();
  stream.send(request_text("POST", "/v1/chat/completions", body.dump()));
  ASSERT_EQ(stream.read(true).status, 200);
  {
    std::lock_guard lock(mutex);
    open = false;
  }
  n_at_gate = 0;
  std::vector<Client> clients;
  for (int i = 0; i < 6; ++i) clients.push_back(send_large());
  ASSERT_TRUE(wait_at_gate(1));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(get("/health").status, 200);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(stream.receive(2000).empty()) << "the stream stands still";
  open_gate();
  for (Client& client : clients) EXPECT_EQ(client.read().json()["count"], 200000);
}

TEST_F(LongWork, TheQueueIsBounded) {
  std::vector<Client> clients;
  int n_refused = 0;
  for (int i = 0; i < 20; ++i) clients.push_back(send_large());
  for (int i = 0; i < 400 && n_refused == 0; ++i)
    for (Client& client : clients)
      if (client.receive(5).find("429 ") != std::string::npos) ++n_refused;
  EXPECT_GT(n_refused, 0);
  EXPECT_EQ(post("/v1/cancel", Json{{"id", "x"}}).status, 429);
  open_gate();
}

TEST_F(LongWork, WhoLeavesIsDropped) {
  std::vector<Client> clients;
  for (int i = 0; i < 8; ++i) clients.push_back(send_large());
  ASSERT_TRUE(wait_at_gate(1));
  for (Client& client : clients) client.close();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  open_gate();
  EXPECT_EQ(post("/tokenize", Json{{"content", "ab"}}).json()["count"], 2);
  EXPECT_LE(n_at_gate, 5) << "those that waited were not begun";
}

TEST_F(LongWork, DrainWaitsForIt) {
  Client client = send_large();
  ASSERT_TRUE(wait_at_gate(1));
  std::thread drain([&] { EXPECT_TRUE(server->drain(20000)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  open_gate();
  EXPECT_EQ(client.read().json()["count"], 200000);
  drain.join();
}

TEST_F(LongWork, HealthIsQuickWhileMegabytesAreTokenized) {
  open_gate();
  std::vector<Client> clients;
  const std::string request = request_text("POST", "/tokenize", large(4 << 20));
  for (int i = 0; i < 4; ++i) {
    clients.push_back(connect());
    clients.back().send(request);
  }
  std::vector<std::thread> readers;
  std::atomic<int> n_left{4};
  for (Client& client : clients)
    readers.emplace_back([&] {
      EXPECT_EQ(client.read().status, 200);
      --n_left;
    });
  std::vector<double> waits_ms;
  while (n_left > 0) {
    const auto began = steady_clock::now();
    EXPECT_EQ(get("/health").status, 200);
    waits_ms.push_back(std::chrono::duration<double, std::milli>(steady_clock::now() - began).count());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (std::thread& reader : readers) reader.join();
  std::sort(waits_ms.begin(), waits_ms.end());
  // Other programs may hold a processor for a moment, so a few late answers are allowed.
  EXPECT_LT(waits_ms[waits_ms.size() * 9 / 10], 200) << waits_ms.size() << " answers, the slowest after " << waits_ms.back() << " ms";
}

}  // namespace
}  // namespace turbo::server::testing
