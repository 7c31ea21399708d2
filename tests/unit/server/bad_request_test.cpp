// Requests that ask for too much or say something odd: refused early, with short messages that read well.
#include <chrono>

#include "client.h"
#include "profile/keys.h"
#include "server/fields.h"

namespace turbo::server::testing {
namespace {

class BadRequest : public ServerTest {
 protected:
  std::string message(const Reply& reply) {
    const Json body = reply.json();
    return body.is_object() && body.contains("error") ? body["error"]["message"].get<std::string>() : "";
  }
  int raw_status(const std::string& bytes) {
    Client client = connect();
    client.send(bytes);
    return client.read().status;
  }
};

TEST_F(BadRequest, MessagesOfBrokenJsonAreShortAndEchoNothing) {
  const std::string digits(3000000, '7'), junk(3000000, 'q');
  const std::string cases[] = {
      "{\"max_tokens\":1" + digits + "}", "{\"max_tokens\":-1" + digits + ".5}", "{\"max_tokens\":777e77777}", "{\"a\":\"" + junk,
      "{\"a\":\"" + junk + "\xff\"}", "{\"a\":\"" + junk + "\\q\"}", "{\"" + junk + "\" 1}", "{\"a\":1 \"" + junk + "\"}", "{\"a\":t" + junk + "}",
      "[1] /* " + junk, "{\"a\":\"" + junk + "\x01\"}"};
  for (const std::string& text : cases) {
    const Reply reply = post_text("/v1/completions", text);
    const std::string said = message(reply);
    EXPECT_EQ(reply.error_code(), "invalid_json") << text.substr(0, 20);
    EXPECT_LT(said.size(), 120u) << said.substr(0, 300);
    EXPECT_NE(said.find("byte "), std::string::npos) << said.substr(0, 300);
    for (const char* never : {"777", "qqq", "json.exception", "last read", "parse error"}) EXPECT_EQ(said.find(never), std::string::npos) << said.substr(0, 300);
  }
  EXPECT_EQ(message(post_text("/v1/completions", "{\"max_tokens\":1e400}")),
            "the body is not valid JSON: byte 19: a number beyond the range of a double");
}

TEST_F(BadRequest, TextToTokenizeIsBounded) {
  constexpr size_t kLimit = 4 << 20;
  for (const char* field : {"content", "prompt"}) {
    const Reply reply = post("/tokenize", Json{{field, std::string(kLimit + 1, 'a')}});
    EXPECT_EQ(reply.status, 413) << field;
    EXPECT_EQ(reply.error_code(), "text_too_long");
    EXPECT_EQ(reply.error_param(), field);
  }
  EXPECT_EQ(post("/tokenize", Json{{"content", std::string(kLimit, 'a')}}).json()["count"], kLimit);
  Json several = chat(std::string(kLimit / 2, 'a'));
  several["messages"].push_back(several["messages"][0]);
  several["messages"].push_back(Json{{"role", "user"}, {"content", {{{"type", "text"}, {"text", "more"}}}}});
  for (const char* path : {"/tokenize", "/v1/chat/completions/input_tokens", "/apply-template"}) {
    const Reply reply = post(path, several);
    EXPECT_EQ(reply.status, 413) << path << reply.body.substr(0, 200);
    EXPECT_EQ(reply.error_param(), "messages");
  }
  EXPECT_EQ(get("/props").json()["limits"]["tokenize_bytes"], kLimit);
}

TEST_F(BadRequest, TheTargetsAuthorityCounts) {
  const auto status = [&](const std::string& target, const std::string& host = "127.0.0.1") {
    return raw_status("GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  };
  for (const char* evil : {"http://evil.example/v1/models", "http://evil.example", "https://evil.example:80/v1/models", "http://evil.example?a=/",
                           "http://127.0.0.1@evil.example/v1/models", "http://localhost:1@evil.example/v1/models", "http:///v1/models", "x://evil.example/health"})
    EXPECT_EQ(status(evil), 403) << evil;
  EXPECT_EQ(status("/health", "localhost:1@evil.example"), 403);
  EXPECT_EQ(status("http://localhost/v1/models"), 200);
  EXPECT_EQ(status("http://127.0.0.1:30000/health"), 200);
  EXPECT_EQ(status("http://[::1]:30000/health?x=1"), 200);
  EXPECT_EQ(status("http://localhost"), 200);
  // Its own site's page: the same authority in both.
  EXPECT_EQ(raw_status("GET http://localhost/health HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\n\r\n"), 403);
}

TEST_F(BadRequest, RangesAreThoseOfTheProfile) {
  const auto find = [](std::span<const Field> table, std::string_view name) {
    for (const Field& field : table)
      if (field.name == name) return field;
    ADD_FAILURE() << name;
    return Field{};
  };
  const auto same = [](const Field& field, const char* key) {
    const profile::KeySpec* spec = profile::find_key(key);
    ASSERT_TRUE(spec) << key;
    EXPECT_EQ(field.min, spec->rule.minimum) << key;
    EXPECT_EQ(field.max, spec->rule.maximum) << key;
    EXPECT_EQ(field.above_min, spec->rule.above_minimum) << key;
  };
  for (const auto table : {chat_fields(), completion_fields()}) {
    for (const char* name : {"temperature", "top_p", "top_k", "min_p", "typical_p", "presence_penalty", "frequency_penalty", "repetition_penalty"})
      same(find(table, name), fmt::format("sampler.{}", name).c_str());
    same(find(table, "repeat_penalty"), "sampler.repetition_penalty");
  }
  same(find(turbo_fields(), "draft_tokens"), "drafter.draft_tokens");
}

TEST_F(BadRequest, OneBoundOnChoices) {
  for (const int64_t n : {int64_t{9}, int64_t{1025}, int64_t{1} << 32, (int64_t{1} << 32) + 1}) {
    Json body = chat();
    body["n"] = n;
    EXPECT_EQ(message(post("/v1/chat/completions", body)), "n: must be at least 1 and at most 8") << n;
    EXPECT_EQ(message(post("/v1/completions", Json{{"prompt", "a"}, {"n", n}})), "n: must be at least 1 and at most 8") << n;
  }
  profile.server.max_queue = 4;
  restart();
  Json body = chat();
  body["n"] = 5;
  EXPECT_EQ(message(post("/v1/chat/completions", body)), "n: must be at least 1 and at most 4");
}

TEST_F(BadRequest, MessagesReadWell) {
  const auto said = [&](const char* path, const char* body) { return message(post_text(path, body)); };
  EXPECT_EQ(said("/v1/completions", R"({"prompt":[]})"), "prompt: must be a non-empty array");
  EXPECT_EQ(said("/v1/completions", R"({"prompt":[[]]})"), "prompt[0]: must be a non-empty array");
  EXPECT_EQ(said("/v1/chat/completions", R"({"messages":[]})"), "messages: must be an array of 1 to 4096 entries");
  EXPECT_EQ(said("/v1/completions", R"({"prompt":"a","stop":[""]})"), "stop[0]: must be a string of 1 to 256 bytes");
  EXPECT_EQ(message(post("/v1/completions", Json{{"prompt", "a"}, {"model", std::string(300, 'x')}})), "model: must be a string of at most 256 bytes");
  EXPECT_EQ(message(post("/v1/completions", Json{{"prompt", "a"}, {"turbo", {{"cache_salt", ""}}}})), "turbo.cache_salt: must be a string of 1 to 128 bytes");
  EXPECT_EQ(said("/v1/completions", R"({"prompt":"a","temperature":3})"), "temperature: must be at least 0 and at most 2");
  EXPECT_EQ(said("/v1/completions", R"({"prompt":"a","stop":["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"]})"),
            "stop: must be an array of at most 16 strings");
}

TEST_F(BadRequest, ExpectIsMetOrRefused) {
  const std::string head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 14\r\n";
  const auto asks = [&](const std::string& expect, const std::string& first) {
    Client client = connect();
    client.send(first + expect + "\r\n");
    return client.read().status;
  };
  for (const char* bad : {"Expect: foo\r\n", "Expect: 100-continue, foo\r\n", "Expect: 100-continue\r\nExpect: foo\r\n", "Expect:\r\n"})
    EXPECT_EQ(asks(bad, head), 417) << bad;
  EXPECT_EQ(asks("Expect: foo\r\n", "GET /health HTTP/1.1\r\nHost: localhost\r\n"), 417);
  EXPECT_EQ(asks("Expect: foo\r\n", "GET /health HTTP/1.0\r\n"), 200) << "HTTP/1.0 knows no expectations";
  EXPECT_EQ(asks("Expect: 100-continue\r\n", "GET /health HTTP/1.1\r\nHost: localhost\r\n"), 200) << "no body, no 100";
  EXPECT_EQ(asks("Expect: 100-continue\r\n", "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n"), 413);

  Client client = connect();  // one that waits, byte by byte, with lengths and chunks, on one connection
  for (const std::string framing : {"Content-Length: 14\r\n", "Transfer-Encoding: chunked\r\n"}) {
    for (const char c : "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-Continue\r\n" + framing + "\r\n") client.send({&c, 1});
    EXPECT_EQ(client.read().status, 100);
    client.send(framing[0] == 'C' ? R"({"prompt":"a"})" : "e\r\n{\"prompt\":\"a\"}\r\n0\r\n\r\n");
    EXPECT_EQ(client.read().status, 200);
  }
  Client old = connect();
  old.send("POST /v1/completions HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 14\r\n\r\n");
  old.send(R"({"prompt":"a"})");
  EXPECT_EQ(old.read().status, 200);
}

}  // namespace
}  // namespace turbo::server::testing
