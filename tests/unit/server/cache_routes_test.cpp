// /slots, /flush_cache, /prefix: what they show, and that they are off unless the profile says otherwise.
#include <fstream>

#include "client.h"
#include "support/temp_dir.h"

namespace turbo::server::testing {

class CacheRoutes : public ServerTest {
 protected:
  static Json completion(uint32_t n = 5) { return Json{{"prompt", "Hi"}, {"max_tokens", n}}; }
};

TEST_F(CacheRoutes, AreOffByDefault) {
  for (const char* path : {"/flush_cache", "/prefix/save", "/prefix/restore"}) {
    const Reply reply = post(path, {{"filename", "a"}, {"prompt", "x"}});
    EXPECT_EQ(reply.status, 403) << path;
    EXPECT_EQ(reply.error_code(), "route_disabled") << path;
  }
  EXPECT_EQ(get("/slots").error_code(), "route_disabled");
  EXPECT_TRUE(backend->prefix_calls.empty());
}

TEST_F(CacheRoutes, SlotsShowLiveRequestsWithoutTheirText) {
  profile.server.expose_slots = true;
  restart();
  EXPECT_EQ(get("/slots").json(), Json::array());
  backend->hold = true;
  Client waiting = connect();
  Json body = completion();
  body["turbo"] = {{"priority", 7}};
  waiting.send(request_text("POST", "/v1/completions", body.dump()));
  ASSERT_TRUE(backend->wait_submitted(1));
  const Json slots = get("/slots").json();
  ASSERT_EQ(slots.size(), 1u);
  EXPECT_EQ(slots[0]["state"], "waiting");
  EXPECT_EQ(slots[0]["priority"], 7);
  EXPECT_EQ(slots[0]["prompt_tokens"], 2);
  EXPECT_FALSE(slots[0].contains("prompt"));
  EXPECT_EQ(slots[0]["request"].get<std::string>().substr(0, 5), "cmpl-");
  backend->hold = false;
  EXPECT_EQ(waiting.read().status, 200);
}

TEST_F(CacheRoutes, SlotsShowPromptsOnlyWhenAllowed) {
  profile.server.expose_slots = profile.server.expose_slot_prompts = true;
  restart();
  backend->hold = true;
  Client waiting = connect();
  waiting.send(request_text("POST", "/v1/completions", completion().dump()));
  ASSERT_TRUE(backend->wait_submitted(1));
  EXPECT_EQ(get("/slots").json()[0]["prompt"], "Hi");
  backend->hold = false;
  waiting.read();
}

TEST_F(CacheRoutes, FlushingIsRefusedWhileRequestsRun) {
  profile.server.allow_cache_flush = true;
  restart();
  EXPECT_EQ(post("/flush_cache", Json::object()).json()["flushed_blocks"], 3);
  backend->hold = true;
  Client waiting = connect();
  waiting.send(request_text("POST", "/v1/completions", completion().dump()));
  ASSERT_TRUE(backend->wait_submitted(1));
  const Reply busy = post("/flush_cache", Json::object());
  EXPECT_EQ(busy.status, 409);
  EXPECT_EQ(busy.error_code(), "busy");
  backend->hold = false;
  waiting.read();
}

TEST_F(CacheRoutes, PrefixFilesStayInTheirFolder) {
  const turbo::testing::TempDir folder;
  profile.server.prefix_dir = folder.path();
  restart();
  EXPECT_EQ(post("/prefix/save", {{"filename", "a-1.kv"}, {"prompt", "hello"}, {"cache_salt", "s"}}).json(),
            (Json{{"filename", "a-1.kv"}, {"n_saved", 64}}));
  EXPECT_EQ(post("/prefix/save", {{"filename", "b"}, {"prompt", {1, 2, 3}}}).status, 200);
  EXPECT_EQ(post("/prefix/restore", {{"filename", "a-1.kv"}}).json(), (Json{{"filename", "a-1.kv"}, {"n_restored", 64}}));
  EXPECT_EQ(backend->prefix_calls, (std::vector<std::string>{"save 5 's' " + (folder.path() / "a-1.kv").string(), "save 3 '' " + (folder.path() / "b").string(),
                                                             "restore '' " + (folder.path() / "a-1.kv").string()}));
  for (const char* name : {"../a", "a/b", ".hidden", "", "a b", "a\nb", "\xc3\xa9"}) {
    const Reply reply = post("/prefix/save", {{"filename", name}, {"prompt", "x"}});
    EXPECT_EQ(reply.status, 400) << name;
    EXPECT_EQ(reply.error_param(), "filename") << name;
  }
  EXPECT_EQ(post("/prefix/save", {{"filename", "a"}}).error_param(), "prompt");
  EXPECT_EQ(post("/prefix/save", {{"filename", "a"}, {"prompt", {99999}}}).status, 400);
  EXPECT_EQ(backend->prefix_calls.size(), 3u);
}

TEST_F(CacheRoutes, FileFaultsNameNoPath) {
  const turbo::testing::TempDir folder;
  profile.server.prefix_dir = folder.path();
  restart();
  const std::pair<Code, int> cases[] = {{Code::not_found, 404}, {Code::corrupt_input, 400}, {Code::unsupported, 400},
                                        {Code::resource_exhausted, 507}, {Code::internal, 500}, {Code::cancelled, 503},
                                        {Code::invalid_argument, 400}};
  for (const auto& [code, status] : cases) {
    backend->prefix_answer = Status(code, "/var/prefixes/a: what went wrong");
    const Reply reply = post("/prefix/restore", {{"filename", "a"}});
    EXPECT_EQ(reply.status, status);
    EXPECT_EQ(reply.body.find("/var"), std::string::npos) << reply.body;
    if (status == 500) {
      EXPECT_EQ(reply.headers.at("x-should-retry"), "false");
    }
  }
}

// What is longer than the window cannot be in the cache; so it is refused before it is tokenized.
TEST_F(CacheRoutes, APromptBeyondTheWindowIsRefused) {
  const turbo::testing::TempDir folder;
  profile.server.prefix_dir = folder.path();
  restart();
  EXPECT_EQ(post("/prefix/save", {{"filename", "a"}, {"prompt", std::string(1 << 20, 'a')}}).status, 400);
  EXPECT_EQ(post("/prefix/save", {{"filename", "a"}, {"prompt", std::vector<int>(3000, 1)}}).status, 400);
  EXPECT_TRUE(backend->prefix_calls.empty());
}

TEST_F(CacheRoutes, PrefixFilesNeedThePrefixCache) {
  const turbo::testing::TempDir folder;
  profile.server.prefix_dir = folder.path();
  profile.engine.prefix_cache = false;
  restart();
  for (const char* path : {"/prefix/save", "/prefix/restore"}) {
    const Reply reply = post(path, {{"filename", "a"}, {"prompt", "x"}});
    EXPECT_EQ(reply.status, 403);
    EXPECT_NE(reply.body.find("engine.prefix_cache"), std::string::npos);
  }
}

TEST(PrefixFolder, IsCheckedAtStart) {
  const turbo::testing::TempDir folder;
  std::ofstream(folder.path() / "file") << "x";
  for (const auto& wrong : {folder.path() / "missing", folder.path() / "file"}) {
    profile::Profile profile;
    profile.server.port = 0;
    profile.server.prefix_dir = wrong;
    const auto refused = Server::start(profile);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.status().code(), Code::invalid_argument);
    EXPECT_NE(refused.status().message().find("server.prefix_dir"), std::string::npos);
    EXPECT_FALSE(refused.status().hint().empty());
  }
}

TEST_F(CacheRoutes, RequestsCarryPrioritySaltAndClient) {
  Json body = completion();
  body["turbo"] = {{"priority", -3}, {"cache_salt", "tenant"}};
  body["cache_prompt"] = false;
  EXPECT_EQ(post("/v1/completions", body).status, 200);
  const engine::Request request = backend->requests().at(0);
  EXPECT_EQ(request.priority, -3);
  EXPECT_EQ(request.cache_salt, "tenant");
  EXPECT_FALSE(request.use_prefix_cache);
  EXPECT_NE(request.client, 0u);
  body["turbo"]["priority"] = 101;
  EXPECT_EQ(post("/v1/completions", body).error_param(), "turbo.priority");
  body["turbo"] = {{"cache_salt", std::string(129, 'a')}};
  EXPECT_EQ(post("/v1/completions", body).error_param(), "turbo.cache_salt");
}

TEST_F(CacheRoutes, AbortRequestIsCancelByAnotherName) {
  EXPECT_EQ(post("/abort_request", {{"rid", "cmpl-unknown"}}).json(), (Json{{"cancelled", false}}));
  EXPECT_EQ(post("/abort_request", {{"id", "x"}}).error_param(), "rid");
}

}  // namespace turbo::server::testing
