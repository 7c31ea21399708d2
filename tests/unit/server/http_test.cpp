// HTTP itself: framing, limits, states of connections, who may call. All over real sockets.
#include <chrono>
#include <thread>

#include "client.h"

namespace turbo::server::testing {
namespace {

class Http : public ServerTest {
 protected:
  int raw_status(const std::string& bytes) {
    Client client = connect();
    client.send(bytes);
    return client.read().status;
  }
  Json endless_stream() {
    backend->script = [](const engine::Request&) { return Script{bytes_of("abcdefgh"), false, true}; };
    Json body = chat();
    body["stream"] = true;
    return body;
  }
};

TEST_F(Http, KeepsAliveAndPipelines) {
  Client client = connect();
  EXPECT_EQ(client.request("GET", "/health").status, 200);
  const std::string post = request_text("POST", "/v1/chat/completions", chat().dump());
  client.send(request_text("GET", "/health") + post + request_text("GET", "/nothing") + post);
  EXPECT_EQ(client.read().status, 200);
  EXPECT_EQ(client.read().json()["choices"][0]["message"]["content"], "Hello!");
  EXPECT_EQ(client.read().status, 404);
  EXPECT_EQ(client.read().status, 200);
  client.send(request_text("GET", "/health", "", "Connection: close\r\n"));
  EXPECT_EQ(client.read().headers.at("connection"), "close");
  EXPECT_TRUE(client.closed());
}

TEST_F(Http, EveryByteMayComeAlone) {
  Client client = connect();
  for (const char c : request_text("POST", "/v1/completions", R"({"prompt":"a"})")) client.send({&c, 1});
  EXPECT_EQ(client.read().status, 200);
}

TEST_F(Http, HalfClosedStillHearsAQuickAnswer) {
  Client client = connect();
  client.send(request_text("GET", "/health") + request_text("GET", "/version"));
  client.half_close();
  EXPECT_EQ(client.read().status, 200);
  EXPECT_EQ(client.read().status, 200);
  EXPECT_TRUE(client.closed());
}

TEST_F(Http, Http10) {
  Client client = connect();
  client.send("GET /health HTTP/1.0\r\n\r\n");
  EXPECT_EQ(client.read().status, 200);
  EXPECT_TRUE(client.closed());
  Json body = chat();
  body["stream"] = true;
  Client stream = connect();
  stream.send("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.dump().size()) + "\r\n\r\n" + body.dump());
  const Reply reply = stream.read();
  EXPECT_EQ(reply.headers.count("transfer-encoding"), 0u);
  EXPECT_EQ(events(reply.body).back(), "[DONE]");
}

TEST_F(Http, HeadOptionsAndWrongVerbs) {
  const Reply head = connect().request("HEAD", "/health");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-length"), "15");
  const Reply options = connect().request("OPTIONS", "/v1/chat/completions");
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.headers.at("allow"), "POST, OPTIONS");
  const Reply wrong = get("/v1/chat/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.error_code(), "method_not_allowed");
  EXPECT_EQ(wrong.headers.at("allow"), "POST, OPTIONS");
  EXPECT_EQ(connect().request("DELETE", "/v1/models").headers.at("allow"), "GET, HEAD, OPTIONS");
  EXPECT_EQ(connect().request("BREW", "/health").status, 405);
}

TEST_F(Http, ErrorShape) {
  const Reply reply = get("/nothing");
  EXPECT_EQ(reply.headers.at("content-type"), "application/json; charset=utf-8");
  EXPECT_EQ(reply.json()["error"], (Json{{"message", "there is nothing at this path"}, {"type", "not_found_error"},
                                         {"param", nullptr}, {"code", "not_found"}, {"status", 404}}));
}

TEST_F(Http, RequestIds) {
  EXPECT_EQ(get("/health", "X-Request-Id: my-id\r\n").headers.at("x-request-id"), "my-id");
  EXPECT_TRUE(get("/health").headers.at("x-request-id").starts_with("req_"));
  EXPECT_TRUE(get("/health", "X-Request-Id: a b\r\n").headers.at("x-request-id").starts_with("req_"));
  EXPECT_TRUE(get("/health", "X-Request-Id: " + std::string(129, 'x') + "\r\n").headers.at("x-request-id").starts_with("req_"));
}

TEST_F(Http, BodiesThatAreNotJson) {
  EXPECT_EQ(post_text("/v1/chat/completions", "").error_code(), "invalid_json");
  const Reply cut = post_text("/v1/chat/completions", "{\"messages\": [");
  EXPECT_EQ(cut.error_code(), "invalid_json");
  EXPECT_NE(cut.json()["error"]["message"].get<std::string>().find("byte 15"), std::string::npos) << cut.body;
  EXPECT_EQ(post_text("/v1/chat/completions", "[]").error_code(), "invalid_type");
  for (const char* bad : {"{\"a\":NaN}", "{\"a\":1e999}", "{\"a\":\"\xff\"}", "{\"a\":\"\\ud800\"}", "{\"a\":\"\x01\"}", "{} x", "nul"})
    EXPECT_EQ(post_text("/v1/chat/completions", bad).error_code(), "invalid_json") << bad;
  EXPECT_EQ(post_text("/v1/chat/completions", std::string("{\"a\":\"\0\"}", 9)).error_code(), "invalid_json");
  EXPECT_EQ(post_text("/v1/chat/completions", "{\"x\":" + std::string(100000, '[') + std::string(100000, ']') + "}").error_code(), "invalid_json");
  EXPECT_EQ(post_text("/v1/completions", "{\"prompt\":\"a\",\"x\":" + std::string(63, '[') + std::string(63, ']') + "}").status, 200);
  EXPECT_EQ(post_text("/v1/completions", "{\"prompt\":\"a\",\"x\":" + std::string(64, '[') + std::string(64, ']') + "}").status, 400);
  EXPECT_EQ(post_text("/v1/completions", "\xEF\xBB\xBF{\"prompt\":\"a\"}").status, 200);
  EXPECT_EQ(post_text("/v1/completions", "{\"prompt\":\"a\\u0000b\"}").status, 200);
}

TEST_F(Http, DuplicateKeysTheLastWins) {
  post_text("/v1/completions", R"({"prompt":"a","max_tokens":"x","prompt":"abc","max_tokens":3})");
  ASSERT_EQ(backend->requests().size(), 1u);
  EXPECT_EQ(backend->requests()[0].prompt.size(), 3u);
}

TEST_F(Http, ManyKeysAreCheap) {
  std::string body = "{\"prompt\":\"a\"";
  for (int i = 0; i < 200000; ++i) body += ",\"k" + std::to_string(i) + "\":1";
  EXPECT_EQ(post_text("/v1/completions", body + "}").status, 200);
}

TEST_F(Http, ContentTypes) {
  const auto with_type = [&](const std::string& type) { return post("/v1/completions", Json{{"prompt", "a"}}, "Content-Type: " + type + "\r\n").status; };
  EXPECT_EQ(with_type("application/json"), 200);
  EXPECT_EQ(with_type("Application/JSON; charset=utf-8"), 200);
  EXPECT_EQ(with_type("text/plain"), 415);
  EXPECT_EQ(post("/v1/completions", Json{{"prompt", "a"}}, "Content-Encoding: gzip\r\n").status, 415);
}

TEST_F(Http, ChunkedBody) {
  Client client = connect();
  client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
              "5\r\n{\"pro\r\n9;ext=1\r\nmpt\":\"a\"}\r\n0\r\n\r\n");
  EXPECT_EQ(client.read().status, 200);
  EXPECT_EQ(client.request("GET", "/health").status, 200);
}

TEST_F(Http, ExpectContinue) {
  Client client = connect();
  client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 14\r\n\r\n");
  EXPECT_EQ(client.read().status, 100);
  client.send(R"({"prompt":"a"})");
  EXPECT_EQ(client.read().status, 200);
}

TEST_F(Http, Smuggling) {
  const std::string start = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n";
  EXPECT_EQ(raw_status(start + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"), 400);
  EXPECT_EQ(raw_status(start + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(raw_status(start + "Content-Length: -5\r\n\r\n"), 400);
  EXPECT_EQ(raw_status(start + "Transfer-Encoding: gzip\r\n\r\n"), 400);
  EXPECT_EQ(raw_status(start + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(raw_status(start + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n"), 400);
  EXPECT_EQ(raw_status("GET /health HTTP/1.1\r\n\r\n"), 400) << "no Host";
  EXPECT_EQ(raw_status("GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n"), 400);
  EXPECT_EQ(raw_status("GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n"), 400);
  EXPECT_EQ(raw_status("complete nonsense\r\n\r\n"), 400);
}

TEST_F(Http, Limits) {
  EXPECT_EQ(get("/" + std::string(9000, 'x')).status, 414);
  EXPECT_EQ(raw_status("GET /" + std::string(20000, 'x')), 414);
  EXPECT_EQ(get("/health", "X-Big: " + std::string(40000, 'x') + "\r\n").status, 431);
  std::string many;
  for (int i = 0; i < 101; ++i) many += "X-" + std::to_string(i) + ": 1\r\n";
  EXPECT_EQ(get("/health", many).status, 431);
  EXPECT_EQ(raw_status("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n"), 413);
  profile.server.body_limit_bytes = 1000;
  restart();
  const Reply reply = post_text("/v1/completions", std::string(1001, ' '));
  EXPECT_EQ(reply.status, 413);
  EXPECT_EQ(reply.error_code(), "body_too_large");
  std::string chunks = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 11; ++i) chunks += "64\r\n" + std::string(100, ' ') + "\r\n";
  EXPECT_EQ(raw_status(chunks + "0\r\n\r\n"), 413);
}

TEST_F(Http, SlowRequestsEnd) {
  profile.server.idle_timeout_ms = 150;
  restart();
  Client silent = connect(), slow = connect(), slow_body = connect();
  slow.send("GET /health HTTP/1.1\r\nHo");
  slow_body.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
  EXPECT_TRUE(silent.closed());
  EXPECT_EQ(slow.read().status, 408);
  EXPECT_EQ(slow_body.read().status, 408);
  EXPECT_TRUE(slow.closed());
}

TEST_F(Http, ManySilentConnections) {
  std::vector<Client> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(connect());
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(Http, TooManyConnections) {
  profile.server.max_connections = 2;
  restart();
  Client first = connect(), second = connect();
  EXPECT_EQ(first.request("GET", "/health").status, 200);
  EXPECT_EQ(second.request("GET", "/health").status, 200);
  Client third = connect();
  EXPECT_EQ(third.read().status, 503);
  first.close();
  for (int i = 0; i < 100 && connect().request("GET", "/health").status != 200; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(second.request("GET", "/health").status, 200);
}

TEST_F(Http, KeysGuardAllButHealthAndPage) {
  profile.server.api_keys = {"secret-key", "other"};
  restart();
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(get("/").status, 200);
  for (const char* path : {"/v1/models", "/models", "/props", "/metrics", "/version", "/nothing", "/%2e/models"}) EXPECT_EQ(get(path).status, 401) << path;
  const Reply reply = post("/chat/completions", chat());
  EXPECT_EQ(reply.status, 401);
  EXPECT_EQ(reply.headers.at("www-authenticate"), "Bearer");
  EXPECT_EQ(reply.error_code(), "invalid_api_key");
  EXPECT_EQ(get("/v1/models", "Authorization: Bearer secret-key\r\n").status, 200);
  EXPECT_EQ(get("/v1/models", "authorization: bearer other\r\n").status, 200);
  EXPECT_EQ(get("/v1/models", "X-Api-Key: other\r\n").status, 200);
  for (const char* wrong : {"secret-ke", "secret-keyy", "", "othersecret-key"})
    EXPECT_EQ(get("/v1/models", "Authorization: Bearer " + std::string(wrong) + "\r\n").status, 401) << wrong;
  EXPECT_EQ(connect().request("OPTIONS", "/v1/models").status, 204);
}

TEST_F(Http, HostAndOrigin) {
  const auto with_host = [&](const std::string& host) { return raw_status("GET /health HTTP/1.1\r\nHost: " + host + "\r\n\r\n"); };
  EXPECT_EQ(with_host("127.0.0.1:30000"), 200);
  EXPECT_EQ(with_host("[::1]:30000"), 200);
  EXPECT_EQ(with_host("LOCALHOST"), 200);
  EXPECT_EQ(with_host("evil.example"), 403);
  EXPECT_EQ(with_host("127.0.0.1.evil.example"), 403);
  EXPECT_EQ(with_host("localhost.evil.example"), 403);
  const Reply local = get("/health", "Origin: http://localhost:5173\r\n");
  EXPECT_EQ(local.headers.at("access-control-allow-origin"), "http://localhost:5173");
  EXPECT_EQ(local.headers.count("access-control-allow-credentials"), 0u);
  EXPECT_EQ(get("/health", "Origin: https://evil.example\r\n").status, 403);
  EXPECT_EQ(get("/health", "Origin: null\r\n").status, 403);
  EXPECT_EQ(connect().request("OPTIONS", "/v1/models", "", "Origin: https://evil.example\r\n").headers.count("access-control-allow-origin"), 0u);
  profile.server.cors_origins = {"https://good.example"};
  restart();
  EXPECT_EQ(get("/health", "Origin: https://good.example\r\n").status, 200);
}

TEST_F(Http, LeavingCancels) {
  for (const bool stream : {true, false}) {
    backend = std::make_shared<FakeBackend>();
    restart();
    Json body = endless_stream();
    body["stream"] = stream;
    backend->step_us = 1000;
    for (const bool reset : {true, false}) {
      const uint32_t before = backend->n_finished;
      Client client = connect();
      client.send(request_text("POST", "/v1/chat/completions", body.dump()));
      if (stream) {
        EXPECT_EQ(client.read(true).status, 200);
      } else {
        EXPECT_TRUE(backend->wait_submitted(before + 1));
      }
      reset ? client.reset() : client.close();
      EXPECT_TRUE(backend->wait_finished(before + 1));
    }
    EXPECT_EQ(backend->n_cancelled, 2u);
  }
}

TEST_F(Http, HalfClosedHearsItsAnswer) {
  backend->step_us = 20000;
  for (const std::string version : {"HTTP/1.1", "HTTP/1.0"})
    for (const bool stream : {false, true}) {
      Json body = chat();
      body["stream"] = stream;
      Client client = connect();
      std::string text = request_text("POST", "/v1/chat/completions", body.dump());
      text.replace(text.find("HTTP/1.1"), 8, version);
      client.send(text);
      client.half_close();
      const Reply reply = client.read();
      EXPECT_EQ(reply.status, 200) << version << " " << stream;
      EXPECT_TRUE(reply.complete);
      EXPECT_NE(reply.body.find(stream ? "[DONE]" : "Hello!"), std::string::npos) << reply.body;
      EXPECT_TRUE(client.closed());
    }
  EXPECT_EQ(backend->n_cancelled, 0u);
}

TEST_F(Http, HalfClosedHearsItsPipelinedAnswersAndErrors) {
  backend->step_us = 10000;
  Client client = connect();
  const std::string post = request_text("POST", "/v1/chat/completions", chat().dump());
  client.send(post + request_text("POST", "/v1/chat/completions", "{") + post + "GET /he");
  client.half_close();
  EXPECT_EQ(client.read().status, 200);
  EXPECT_EQ(client.read().status, 400);
  EXPECT_EQ(client.read().status, 200);
  EXPECT_TRUE(client.closed()) << "a request that was never whole";
}

TEST_F(Http, LeavingAfterAHalfCloseCancels) {
  Json body = endless_stream();
  backend->hold = true;
  for (const bool stream : {false, true}) {
    body["stream"] = stream;
    const uint32_t before = backend->n_finished;
    Client client = connect();
    client.send(request_text("POST", "/v1/chat/completions", body.dump()));
    EXPECT_TRUE(backend->wait_submitted(before + 1));
    client.half_close();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_EQ(backend->n_finished, before);
    client.close();
    EXPECT_TRUE(backend->wait_finished(before + 1));
  }
  EXPECT_EQ(backend->n_cancelled, 2u);
}

TEST_F(Http, LeavingWhileQueuedCancels) {
  backend->hold = true;
  Client client = connect();
  client.send(request_text("POST", "/v1/chat/completions", chat().dump()));
  EXPECT_TRUE(backend->wait_submitted(1));
  client.close();
  EXPECT_TRUE(backend->wait_finished(1));
}

TEST_F(Http, AReaderThatDoesNotReadIsGivenUp) {
  Json body = endless_stream();
  body["n"] = 8;
  body["logprobs"] = true;
  body["top_logprobs"] = 20;
  body["max_tokens"] = 2000;
  backend->step_us = 2000;  // slower than the server, which is then still sending when the client is given up
  Client stuck = connect(4096);
  stuck.send(request_text("POST", "/v1/chat/completions", body.dump()));
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_TRUE(backend->wait_finished(8));
  EXPECT_GT(backend->n_cancelled, 0u) << "16000 tokens of scores are far more than may wait";
  EXPECT_EQ(post("/v1/completions", Json{{"prompt", "a"}, {"max_tokens", 3}}).status, 200);
}

TEST_F(Http, AStreamsHeadComesWhileItWaits) {
  backend->hold = true;
  Json body = endless_stream();
  profile.server.sse_ping_ms = 50;
  restart();
  Client client = connect();
  client.send(request_text("POST", "/v1/chat/completions", body.dump()));
  EXPECT_EQ(client.read(true).status, 200);
  std::string seen;
  for (int i = 0; i < 100 && seen.find(": ping\n\n") == std::string::npos; ++i) seen += client.receive();
  EXPECT_NE(seen.find(": ping\n\n"), std::string::npos);
}

TEST_F(Http, CancelById) {
  Json body = endless_stream();
  backend->step_us = 1000;
  Client client = connect();
  client.send(request_text("POST", "/v1/chat/completions", body.dump()));
  client.read(true);
  std::string seen;
  while (seen.find("chatcmpl-") == std::string::npos || seen.find("\n\n") == std::string::npos) {
    const std::string more = client.receive();
    ASSERT_FALSE(more.empty());
    seen += more;
  }
  const std::string id = seen.substr(seen.find("chatcmpl-"), 9 + 24);
  EXPECT_EQ(post("/v1/cancel", Json{{"id", id}}).json(), (Json{{"cancelled", true}}));
  EXPECT_TRUE(backend->wait_finished(1));
  while (true) {
    const std::string more = client.receive(2000);
    if (more.empty()) break;
    seen += more;
    if (seen.find("\"code\":\"cancelled\"") != std::string::npos) break;
  }
  EXPECT_NE(seen.find("\"code\":\"cancelled\""), std::string::npos);
  EXPECT_EQ(seen.find("[DONE]"), std::string::npos);
  EXPECT_EQ(post("/v1/cancel", Json{{"id", id}}).json(), (Json{{"cancelled", false}}));
  EXPECT_EQ(post("/cancel", Json{{"id", "x"}}).json(), (Json{{"cancelled", false}}));
  EXPECT_EQ(post("/v1/cancel", Json::object()).error_param(), "id");
}

TEST_F(Http, Loading) {
  ready = false;
  restart();
  for (const char* path : {"/health", "/v1/models", "/metrics"}) {
    const Reply reply = get(path);
    EXPECT_EQ(reply.status, 503);
    EXPECT_EQ(reply.error_code(), "loading");
    EXPECT_TRUE(reply.headers.count("retry-after"));
  }
  EXPECT_EQ(post("/v1/chat/completions", chat()).error_code(), "loading");
  EXPECT_NE(get("/").body.find("Loading"), std::string::npos);
  server->attach(backend);
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(Http, DrainFinishesWhatRuns) {
  say("some words");
  backend->step_us = 20000;
  Client running = connect(), idle = connect();
  EXPECT_EQ(idle.request("GET", "/health").status, 200);
  running.send(request_text("POST", "/v1/chat/completions", chat().dump()));
  ASSERT_TRUE(backend->wait_submitted(1));
  bool clean = false;
  std::thread drain([&] { clean = server->drain(20000); });
  Reply health;
  for (int i = 0; i < 200 && health.status != 503; ++i) health = idle.request("GET", "/health");
  EXPECT_EQ(health.error_code(), "draining");
  EXPECT_EQ(running.read().json()["choices"][0]["message"]["content"], "some words");
  drain.join();
  EXPECT_TRUE(clean);
  EXPECT_TRUE(idle.closed());
}

TEST_F(Http, DrainCancelsWhatDoesNotEnd) {
  Json body = endless_stream();
  body["stream"] = false;
  backend->step_us = 50000;
  Client running = connect();
  running.send(request_text("POST", "/v1/chat/completions", body.dump()));
  ASSERT_TRUE(backend->wait_submitted(1));
  EXPECT_FALSE(server->drain(50));
  EXPECT_EQ(running.read().error_code(), "draining");
}

TEST_F(Http, CancellingShortensADrain) {
  const Json body = endless_stream();
  Client running = connect(), control = connect();
  running.send(request_text("POST", "/v1/chat/completions", body.dump()));
  ASSERT_TRUE(backend->wait_submitted(1));
  bool clean = false;
  std::thread drain([&] { clean = server->drain(20000); });
  Reply health;
  for (int i = 0; i < 200 && health.status != 503; ++i) health = control.request("GET", "/health");
  EXPECT_EQ(control.request("POST", "/tokenize", Json{{"content", "a"}}.dump()).error_code(), "draining");
  EXPECT_EQ(control.request("POST", "/v1/cancel", Json{{"id", backend->requests().at(0).name}}.dump()).json(), (Json{{"cancelled", true}}));
  drain.join();
  EXPECT_TRUE(clean);
}

TEST_F(Http, DestroyedWhileBusy) {
  const Json body = endless_stream();
  std::vector<Client> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(connect());
    clients.back().send(request_text("POST", "/v1/chat/completions", body.dump()));
  }
  ASSERT_TRUE(backend->wait_submitted(20));
  server.reset();
  EXPECT_TRUE(backend->wait_finished(20));
}

TEST_F(Http, ALostDeviceFailsAllAndTurnsHealth) {
  backend->script = [](const engine::Request&) { return Script{bytes_of("ab"), true, false, Code::device_lost}; };
  const Reply running = post("/v1/chat/completions", chat());
  EXPECT_EQ(running.status, 500);
  EXPECT_EQ(running.error_code(), "device_lost");
  EXPECT_EQ(get("/health").status, 200);
  backend->broken = true;
  for (const Reply& reply : {get("/health"), get("/v1/health"), post("/v1/chat/completions", chat()), post("/tokenize", Json{{"content", "a"}})}) {
    EXPECT_EQ(reply.status, 503);
    EXPECT_EQ(reply.error_code(), "device_lost");
    EXPECT_NE(reply.body.find("the device is gone"), std::string::npos);
  }
}

TEST_F(Http, PortInUse) {
  profile::Profile second = profile;
  second.server.port = server->port();
  const auto refused = Server::start(second);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status().code(), Code::resource_exhausted) << "the machine's refusal, not a faulty setting";
  EXPECT_NE(refused.status().message().find("cannot listen on 127.0.0.1"), std::string::npos);
  EXPECT_NE(refused.status().hint().find("another server.port"), std::string::npos);
}

TEST_F(Http, AddressOfAnotherMachine) {
  for (const char* host : {"192.0.2.1", "no-such-host.invalid"}) {  // a network for examples; a name that never resolves
    profile::Profile second = profile;
    second.server.host = host;
    const auto refused = Server::start(second);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.status().hint().find("address of this machine"), std::string::npos) << refused.status().hint();
  }
}

}  // namespace
}  // namespace turbo::server::testing
