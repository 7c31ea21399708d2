// Text completions, text utilities and information routes over a real socket.
#include "client.h"

namespace turbo::server::testing {
namespace {

class Completions : public ServerTest {
 protected:
  // Whole and streamed must agree; gives the whole answer.
  Json both(Json body) {
    const Reply reply = post("/v1/completions", body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    const Json whole = reply.json();
    body["stream"] = true;
    const Reply stream = post("/v1/completions", body);
    std::map<int, std::string> texts, reasons;
    std::map<int, Json> tokens;
    const auto list = events(stream.body);
    EXPECT_EQ(list.back(), "[DONE]");
    for (size_t i = 0; i + 1 < list.size(); ++i) {
      const Json chunk = Json::parse(list[i]);
      EXPECT_EQ(chunk["object"], "text_completion");
      for (const Json& choice : chunk["choices"]) {
        const int index = choice["index"].get<int>();
        texts[index] += choice["text"].get<std::string>();
        if (choice["logprobs"].is_object())
          for (const Json& token : choice["logprobs"]["tokens"]) tokens[index].push_back(token);
        if (choice["finish_reason"].is_string()) reasons[index] = choice["finish_reason"].get<std::string>();
      }
    }
    for (const Json& choice : whole["choices"]) {
      const int index = choice["index"].get<int>();
      EXPECT_EQ(texts[index], choice["text"].get<std::string>());
      EXPECT_EQ(reasons[index], choice["finish_reason"].get<std::string>());
      if (choice["logprobs"].is_object()) {
        EXPECT_EQ(tokens[index], choice["logprobs"]["tokens"]);
      }
    }
    return whole;
  }
};

TEST_F(Completions, PromptsTimesChoices) {
  backend->script = [](const engine::Request& request) { return Script{request.prompt}; };
  const Json whole = both(Json{{"prompt", {"ab", "c"}}, {"n", 2}});
  ASSERT_EQ(whole["choices"].size(), 4u);
  EXPECT_EQ(whole["choices"][1]["text"], "ab");
  EXPECT_EQ(whole["choices"][2]["text"], "c");
  EXPECT_EQ(whole["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(whole["usage"]["completion_tokens"], 6);
  EXPECT_TRUE(whole["id"].get<std::string>().starts_with("cmpl-"));
}

TEST_F(Completions, TimingsTellStepsByRowsAndTheDraftersTime) {
  say("ab");
  const Json body{{"prompt", "x"}, {"turbo", {{"timings", true}}}};
  const Json timings = post("/v1/completions", body).json()["timings"];
  EXPECT_EQ(timings["steps_by_rows"], Json::parse(R"([{"rows": 1, "steps": 1, "ms": 5.0}, {"rows": 4, "steps": 1, "ms": 7.0}])"));
  EXPECT_EQ(timings["draft_ms"], 0.5);
}

TEST_F(Completions, EchoWithLogprobs) {
  say("cd");
  const Json choice = both(Json{{"prompt", "ab"}, {"echo", true}, {"logprobs", 1}})["choices"][0];
  EXPECT_EQ(choice["text"], "abcd");
  EXPECT_EQ(choice["logprobs"]["tokens"], (Json{"a", "b", "c", "d"}));
  EXPECT_TRUE(choice["logprobs"]["token_logprobs"][0].is_null());
  EXPECT_EQ(choice["logprobs"]["token_logprobs"][1], -0.25);
  EXPECT_EQ(choice["logprobs"]["text_offset"], (Json{0, 1, 2, 3}));
  const Json scored = both(Json{{"prompt", "ab"}, {"echo", true}, {"logprobs", 0}, {"max_tokens", 0}})["choices"][0];
  EXPECT_EQ(scored["text"], "ab");
  EXPECT_EQ(scored["finish_reason"], "length");
}

TEST_F(Completions, IdsAsPrompts) {
  EXPECT_EQ(both(Json{{"prompt", {104.0, 105}}})["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(both(Json{{"prompt", Json::array({Json{1}, Json{2, 3}})}})["choices"].size(), 2u);
  const auto wrong = [&](Json prompt) {
    const Reply reply = post("/v1/completions", Json{{"prompt", std::move(prompt)}});
    EXPECT_EQ(reply.status, 400);
    return reply.error_code() + " " + reply.error_param();
  };
  EXPECT_EQ(wrong({1, kVocab}), "out_of_range prompt[1]");
  EXPECT_EQ(wrong({1, -1}), "out_of_range prompt[1]");
  EXPECT_EQ(wrong({1, 1.5}), "invalid_type prompt[1]");
  EXPECT_EQ(wrong({1, "x"}), "invalid_type prompt[1]");
  EXPECT_EQ(wrong(Json::array()), "out_of_range prompt");
  EXPECT_EQ(wrong(Json::array({Json::array()})), "out_of_range prompt[0]");
  EXPECT_EQ(wrong(Json(std::vector<std::string>(65, "x"))), "out_of_range prompt");
  EXPECT_EQ(wrong(""), "out_of_range prompt") << "the model has no begin token";
}

TEST_F(Completions, DefaultLengthIsSixteen) {
  say(std::string(40, 'x'));
  const Json whole = both(Json{{"prompt", "a"}});
  EXPECT_EQ(whole["usage"]["completion_tokens"], 16);
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "length");
}

TEST_F(Completions, UnsupportedFields) {
  EXPECT_EQ(post("/v1/completions", Json{{"prompt", "a"}, {"suffix", "b"}}).error_code(), "unsupported_value");
  EXPECT_EQ(post("/v1/completions", Json{{"prompt", "a"}, {"best_of", 2}}).error_param(), "best_of");
  EXPECT_EQ(post("/v1/completions", Json{{"prompt", "a"}, {"best_of", 1}}).status, 200);
  EXPECT_EQ(post("/completions", Json{{"prompt", "a"}}).status, 501);
  EXPECT_EQ(post("/v1/embeddings", Json{{"input", "a"}}).status, 501);
  EXPECT_EQ(post("/v1/messages", Json::object()).headers.at("x-should-retry"), "false");
}

TEST_F(Completions, SamplingReachesTheEngine) {
  post("/v1/completions", Json::parse(R"({"prompt":"a","temperature":0,"top_k":5,"min_p":0.1,"seed":-1,"stop_token_ids":[65],
    "min_tokens":2,"logit_bias":{"66":-100,"z":3},"repeat_penalty":1.1,"timeout_ms":5000,"turbo":{"drafter":"off","draft_tokens":3}})"));
  const engine::Request request = backend->requests().back();
  EXPECT_EQ(request.sampling.temperature, 0.0f);
  EXPECT_EQ(request.sampling.top_k, 5);
  EXPECT_EQ(request.sampling.seed, UINT64_MAX);
  EXPECT_EQ(request.end_tokens, (std::vector<int32_t>{kEnd, 65}));
  EXPECT_EQ(request.min_tokens, 2u);
  EXPECT_EQ(request.sampling.logit_bias, (std::vector<std::pair<int32_t, float>>{{66, -100.0f}, {'z', 3.0f}}));
  EXPECT_FLOAT_EQ(request.sampling.repetition_penalty, 1.1f);
  EXPECT_EQ(request.timeout_ms, 5000u);
  EXPECT_FALSE(request.use_drafter);
  EXPECT_EQ(request.draft_slots, 3u);
  post("/v1/completions", Json{{"prompt", "a"}, {"ignore_eos", true}});
  EXPECT_TRUE(backend->requests().back().end_tokens.empty());
}

TEST_F(Completions, BiasAndStopsAreBounded) {
  const auto wrong = [&](const char* name, Json value) {
    const Reply reply = post("/v1/completions", Json{{"prompt", "a"}, {name, std::move(value)}});
    EXPECT_EQ(reply.status, 400);
    return reply.error_code() + " " + reply.error_param();
  };
  EXPECT_EQ(wrong("logit_bias", {{"260", 1}}), "out_of_range logit_bias.260");
  EXPECT_EQ(wrong("logit_bias", {{"1", 101}}), "out_of_range logit_bias.1");
  EXPECT_EQ(wrong("logit_bias", {{"1", "x"}}), "invalid_type logit_bias.1");
  EXPECT_EQ(wrong("logit_bias", {{"two words", 1}}), "unsupported_value logit_bias.two words");
  EXPECT_EQ(wrong("stop", ""), "out_of_range stop");
  EXPECT_EQ(wrong("stop", 5), "invalid_type stop");
  EXPECT_EQ(wrong("stop", std::string(257, 'x')), "out_of_range stop");
  EXPECT_EQ(wrong("stop", std::vector<std::string>(17, "x")), "out_of_range stop");
  EXPECT_EQ(wrong("stop", {"a", 1}), "invalid_type stop[1]");
  EXPECT_EQ(wrong("n", 9), "out_of_range n");
  EXPECT_EQ(wrong("turbo", {{"cache_salt", "a b"}}), "out_of_range turbo.cache_salt");
  EXPECT_EQ(wrong("stream_options", 1), "invalid_type stream_options");
}

TEST_F(Completions, Tokens) {
  const Json tokens = post("/tokenize", Json{{"content", "hé"}, {"with_pieces", true}}).json();
  EXPECT_EQ(tokens["count"], 3);
  EXPECT_EQ(tokens["max_model_len"], 2048);
  EXPECT_EQ(tokens["tokens"][0], (Json{{"id", 104}, {"piece", "h"}}));
  EXPECT_EQ(tokens["tokens"][1]["piece"], Json::array({0xC3}));
  EXPECT_EQ(post("/detokenize", Json{{"tokens", {104, 0xC3, 0xA9}}}).json()["content"], "hé");
  EXPECT_EQ(post("/tokenize", Json{{"content", "<|im_end|>"}}).json()["tokens"], Json::array({kEnd}));
  EXPECT_EQ(post("/tokenize", Json{{"content", "<|im_end|>"}, {"parse_special", false}}).json()["count"], 10);
  EXPECT_EQ(post("/tokenize", Json::object()).error_code(), "missing_field");
  EXPECT_EQ(post("/detokenize", Json{{"tokens", {1e9}}}).error_param(), "tokens[0]");
  EXPECT_GT(post("/tokenize", chat()).json()["count"], 10);
}

TEST_F(Completions, Models) {
  EXPECT_EQ(get("/v1/models").json()["data"][0]["id"], "org/fake");
  EXPECT_EQ(get("/models").status, 200);
  EXPECT_EQ(get("/v1/models/org/fake").json()["object"], "model");
  EXPECT_EQ(get("/v1/models/org%2Ffake").status, 200);
  EXPECT_EQ(get("/v1/models/other").error_code(), "model_not_found");
  profile.server.lenient_model = false;
  restart();
  Json body = chat();
  body["model"] = "other";
  const Reply reply = post("/v1/chat/completions", body);
  EXPECT_EQ(reply.status, 404);
  EXPECT_EQ(reply.error_code(), "model_not_found");
  body["model"] = "org/fake";
  EXPECT_EQ(post("/v1/chat/completions", body).status, 200);
}

TEST_F(Completions, Information) {
  EXPECT_EQ(get("/health").json(), (Json{{"status", "ok"}}));
  EXPECT_EQ(get("/v1/health").status, 200);
  EXPECT_TRUE(get("/version").json()["version"].is_string());
  const Json props = get("/props").json();
  EXPECT_EQ(props["n_ctx"], 2048);
  EXPECT_FALSE(props.contains("model_path"));
  EXPECT_EQ(get("/slots").error_code(), "route_disabled");
  const Reply page = get("/");
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_EQ(page.body.find("http://"), std::string::npos);
  EXPECT_EQ(page.body.find("https://"), std::string::npos);
  profile.server.web_page = false;
  restart();
  EXPECT_EQ(get("/").error_code(), "not_found");
}

TEST_F(Completions, Metrics) {
  get("/health");
  get("/nothing/here");
  const Reply reply = get("/metrics");
  EXPECT_EQ(reply.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_NE(reply.body.find("turbo_requests_total{route=\"health\",status=\"200\"} 1"), std::string::npos) << reply.body;
  EXPECT_NE(reply.body.find("route=\"other\",status=\"404\""), std::string::npos);
  EXPECT_NE(reply.body.find("turbo_requests_running"), std::string::npos);
}

}  // namespace
}  // namespace turbo::server::testing
