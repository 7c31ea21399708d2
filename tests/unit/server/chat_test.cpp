// Chat completions over a real socket: whole and streamed answers, and that both say the same.
#include "client.h"

namespace turbo::server::testing {
namespace {

struct Joined {
  std::string content, reasoning, finish;
  std::vector<Json> calls;
  Json logprobs = Json::array();
  Json usage;
  bool role_first = false, done = false;
};

// Joins a stream's deltas per choice as clients do.
std::map<int, Joined> join(const std::string& body) {
  std::map<int, Joined> choices;
  bool done = false;
  std::string id;
  for (const std::string& data : events(body)) {
    EXPECT_FALSE(done) << "an event after [DONE]";
    if (data == "[DONE]") {
      done = true;
      continue;
    }
    const Json chunk = Json::parse(data);
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    EXPECT_FALSE(chunk.contains("error")) << data;
    if (id.empty()) id = chunk["id"].get<std::string>();
    EXPECT_EQ(chunk["id"], id);
    if (chunk["choices"].empty()) choices[0].usage = chunk["usage"];
    for (const Json& choice : chunk["choices"]) {
      const int index = choice["index"].get<int>();
      const bool seen = choices.count(index) > 0;
      Joined& joined = choices[index];
      EXPECT_TRUE(joined.finish.empty()) << "a chunk after the finish";
      const Json& delta = choice["delta"];
      if (!seen) joined.role_first = delta.contains("role") && delta["role"] == "assistant" && delta["content"] == "";
      if (delta.contains("content") && delta["content"].is_string()) joined.content += delta["content"].get<std::string>();
      if (delta.contains("reasoning_content")) joined.reasoning += delta["reasoning_content"].get<std::string>();
      if (delta.contains("tool_calls"))
        for (const Json& call : delta["tool_calls"]) {
          const size_t at = call["index"].get<size_t>();
          if (call.contains("id")) {
            EXPECT_EQ(at, joined.calls.size());
            joined.calls.push_back(call);
          } else {
            joined.calls.at(at)["function"]["arguments"].get_ref<std::string&>() += call["function"]["arguments"].get<std::string>();
          }
        }
      if (choice["logprobs"].is_object())
        for (const Json& entry : choice["logprobs"]["content"]) joined.logprobs.push_back(entry);
      if (choice["finish_reason"].is_string()) joined.finish = choice["finish_reason"].get<std::string>();
    }
  }
  for (auto& [index, joined] : choices) joined.done = done;
  return choices;
}

class Chat : public ServerTest {
 protected:
  // The same request whole and streamed must agree; gives the whole answer.
  Json both(Json body) {
    const Json whole = post("/v1/chat/completions", body).json();
    body["stream"] = true;
    const Reply stream = post("/v1/chat/completions", body);
    EXPECT_EQ(stream.status, 200) << stream.body;
    EXPECT_TRUE(stream.complete);
    auto joined = join(stream.body);
    EXPECT_EQ(joined.size(), whole["choices"].size());
    for (const Json& choice : whole["choices"]) {
      const Joined& other = joined[choice["index"].get<int>()];
      const Json& message = choice["message"];
      EXPECT_TRUE(other.role_first);
      EXPECT_TRUE(other.done);
      EXPECT_EQ(other.content, message["content"].is_null() ? "" : message["content"].get<std::string>());
      EXPECT_EQ(other.reasoning, message.value("reasoning_content", ""));
      EXPECT_EQ(other.finish, choice["finish_reason"].get<std::string>());
      EXPECT_EQ(other.logprobs, choice["logprobs"].is_null() ? Json::array() : choice["logprobs"]["content"]);
      const Json calls = message.value("tool_calls", Json::array());
      EXPECT_EQ(other.calls.size(), calls.size());
      for (size_t i = 0; i < std::min(calls.size(), other.calls.size()); ++i) EXPECT_EQ(other.calls[i]["function"], calls[i]["function"]);
    }
    return whole;
  }
};

TEST_F(Chat, AnswersWithTheDocumentedShape) {
  const Reply reply = post("/v1/chat/completions", chat());
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.headers.at("content-type"), "application/json; charset=utf-8");
  const Json body = reply.json();
  EXPECT_TRUE(body["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["model"], "org/fake");
  EXPECT_EQ(body["choices"][0]["message"], (Json{{"role", "assistant"}, {"content", "Hello!"}, {"refusal", nullptr}}));
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(body["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(body["usage"]["completion_tokens"], 6);
  EXPECT_EQ(body["usage"]["total_tokens"].get<int>(), body["usage"]["prompt_tokens"].get<int>() + 6);
}

TEST_F(Chat, StreamedEqualsWhole) {
  both(chat());
  Json body = chat();
  body["n"] = 3;
  body["logprobs"] = true;
  body["top_logprobs"] = 2;
  const Json whole = both(body);
  EXPECT_EQ(whole["choices"].size(), 3u);
  EXPECT_EQ(whole["choices"][2]["logprobs"]["content"].size(), 6u);
  EXPECT_EQ(whole["choices"][2]["logprobs"]["content"][0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(whole["usage"]["completion_tokens"], 18);
}

TEST_F(Chat, StreamHeadersAndUsage) {
  Json body = chat();
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  const Reply reply = post("/v1/chat/completions", body);
  EXPECT_EQ(reply.headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(reply.headers.at("cache-control"), "no-cache");
  EXPECT_EQ(reply.headers.at("x-accel-buffering"), "no");
  EXPECT_EQ(reply.headers.count("content-length"), 0u);
  EXPECT_EQ(join(reply.body)[0].usage["completion_tokens"], 6);
  EXPECT_TRUE(Json::parse(events(reply.body)[0])["usage"].is_null());
}

TEST_F(Chat, EmojiSplitAcrossTokensStaysWhole) {
  say("a😀b");
  Json body = chat();
  body["logprobs"] = true;
  EXPECT_EQ(both(body)["choices"][0]["message"]["content"], "a😀b");
  say("cut \xF0\x9F");
  EXPECT_EQ(both(chat())["choices"][0]["message"]["content"], "cut \xEF\xBF\xBD");
}

TEST_F(Chat, StopStrings) {
  say("one two three");
  Json body = chat();
  body["logprobs"] = true;
  for (const auto& [stop, expected] : std::vector<std::pair<Json, std::string>>{
           {"o", ""}, {" two", "one"}, {Json{"three", "two "}, "one "}, {Json{"two t", "wo"}, "one t"}, {"never", "one two three"}}) {
    body["stop"] = stop;
    const Json choice = both(body)["choices"][0];
    EXPECT_EQ(choice["message"]["content"], expected) << stop;
    EXPECT_EQ(choice["finish_reason"], "stop");
    EXPECT_EQ(choice["logprobs"]["content"].size(), expected.size());
  }
  say("x é y");
  body["stop"] = "é";
  EXPECT_EQ(both(body)["choices"][0]["message"]["content"], "x ");
  EXPECT_EQ(backend->n_cancelled, 0u) << "an answer that met its stop string was not cancelled";
}

TEST_F(Chat, LengthAndBudget) {
  Json body = chat();
  body["max_tokens"] = 1;
  EXPECT_EQ(both(body)["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(both(body)["choices"][0]["message"]["content"], "H");
  body["max_completion_tokens"] = 2;
  EXPECT_EQ(both(body)["choices"][0]["message"]["content"], "He");
  body["max_completion_tokens"] = 0;
  EXPECT_EQ(both(body)["choices"][0]["message"]["content"], "");
  body["max_completion_tokens"] = 1 << 30;
  EXPECT_EQ(both(body)["choices"][0]["finish_reason"], "stop");
  EXPECT_LE(backend->requests().back().prompt.size() + backend->requests().back().max_tokens, 2048u);
}

TEST_F(Chat, Window) {
  const size_t overhead = post("/v1/chat/completions/input_tokens", chat("")).json()["input_tokens"].get<size_t>();
  EXPECT_EQ(post("/v1/chat/completions", chat(std::string(2048 - overhead - 1, 'x'))).status, 200);
  Json full = chat(std::string(2048 - overhead, 'x'));
  const Reply over = post("/v1/chat/completions", full);
  EXPECT_EQ(over.status, 400);
  EXPECT_EQ(over.error_code(), "context_length_exceeded");
  EXPECT_EQ(over.json()["error"]["n_prompt_tokens"], 2048);
  EXPECT_EQ(over.json()["error"]["n_ctx"], 2048);
  full["max_tokens"] = 0;
  EXPECT_EQ(post("/v1/chat/completions", full).status, 200);
  EXPECT_EQ(post("/v1/chat/completions", chat(std::string(100000, 'x'))).error_code(), "context_length_exceeded");
}

TEST_F(Chat, SpecialTokenTextOfUsersIsPlain) {
  post("/v1/chat/completions", chat("a<|im_end|>b"));
  const std::vector<int32_t> prompt = backend->requests().back().prompt;
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), kEnd), 1) << "only the template's own";
}

TEST_F(Chat, AssistantLastIsContinued) {
  Json body = chat();
  body["messages"].push_back({{"role", "assistant"}, {"content", "Well, "}});
  const std::string prompt = post("/apply-template", body).json()["prompt"].get<std::string>();
  EXPECT_TRUE(prompt.ends_with("<|im_start|>assistant\nWell, ")) << prompt;
  EXPECT_EQ(post("/v1/chat/completions", body).status, 200);
}

TEST_F(Chat, Messages) {
  const auto param = [&](Json messages) {
    const Reply reply = post("/v1/chat/completions", Json{{"messages", std::move(messages)}});
    EXPECT_EQ(reply.status, 400) << reply.body;
    return reply.error_code() + " " + reply.error_param();
  };
  EXPECT_EQ(param(Json::array()), "out_of_range messages");
  EXPECT_EQ(param(Json::array({1})), "invalid_type messages[0]");
  EXPECT_EQ(param(Json::array({Json{{"content", "x"}}})), "missing_field messages[0].role");
  EXPECT_EQ(param(Json::array({Json{{"role", "king"}, {"content", "x"}}})), "unsupported_value messages[0].role");
  EXPECT_EQ(param(Json::array({Json{{"role", "user"}}})), "missing_field messages[0].content");
  EXPECT_EQ(param(Json::array({Json{{"role", "user"}, {"content", 5}}})), "invalid_type messages[0].content");
  EXPECT_EQ(param(Json::array({Json{{"role", "user"}, {"content", {{{"type", "image_url"}}}}}})), "unsupported_value messages[0].content[0].type");
  EXPECT_EQ(param(Json::array({Json{{"role", "tool"}, {"content", "x"}}})), "missing_field messages[0].tool_call_id");
  EXPECT_EQ(param(Json::array({Json{{"role", "tool"}, {"content", "x"}, {"tool_call_id", "a"}}})), "unsupported_value messages[0].tool_call_id");
  const Reply parts = post("/v1/chat/completions", Json::parse(R"({"messages":[{"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"role":"user","content":"x"}]})"));
  EXPECT_EQ(parts.status, 200) << parts.body;
}

TEST_F(Chat, ThinkingBecomesReasoning) {
  say("<think>\nhm, <b\n</think>\n\nAnswer <thi");
  Json whole = both(chat());
  EXPECT_EQ(whole["choices"][0]["message"]["reasoning_content"], "hm, <b");
  EXPECT_EQ(whole["choices"][0]["message"]["content"], "Answer <thi");
  EXPECT_GT(whole["usage"]["completion_tokens_details"]["reasoning_tokens"].get<int>(), 5);
  say("hm</think>Answer");
  Json body = chat();
  body["chat_template_kwargs"] = {{"open_think", true}};
  whole = both(body);
  EXPECT_EQ(whole["choices"][0]["message"]["reasoning_content"], "hm");
  EXPECT_EQ(whole["choices"][0]["message"]["content"], "Answer");
}

const char* const kTool = R"([{"type":"function","function":{"name":"add","parameters":{"type":"object"}}}])";

TEST_F(Chat, ToolCalls) {
  say("Let me see.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"b\": 2, \"a\": \"é\"}}\n</tool_call>\n<tool_call>{\"name\":\"add\"}</tool_call>\n");
  Json body = chat();
  body["tools"] = Json::parse(kTool);
  Json choice = both(body)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], "Let me see.");
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 2u);
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"b\":2,\"a\":\"é\"}");
  EXPECT_EQ(choice["message"]["tool_calls"][1]["function"]["arguments"], "{}");
  EXPECT_TRUE(choice["message"]["tool_calls"][0]["id"].get<std::string>().starts_with("call_"));

  body["parallel_tool_calls"] = false;
  body["logprobs"] = true;
  EXPECT_EQ(both(body)["choices"][0]["message"]["tool_calls"].size(), 1u);

  body["tool_choice"] = "none";
  choice = both(body)["choices"][0];
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
  EXPECT_NE(choice["message"]["content"].get<std::string>().find("<tool_call>"), std::string::npos);
}

TEST_F(Chat, WhatIsNoCallStaysText) {
  Json body = chat();
  body["tools"] = Json::parse(kTool);
  for (const std::string text : {"<tool_call>{\"name\": \"rm\"}</tool_call>", "<tool_call>nonsense</tool_call> after", "<tool_call>{\"name\":", "a <tool_"}) {
    say(text);
    const Json choice = both(body)["choices"][0];
    EXPECT_EQ(choice["message"]["content"], text);
    EXPECT_EQ(choice["finish_reason"], "stop");
  }
}

TEST_F(Chat, ToolRequests) {
  Json body = chat();
  body["tools"] = Json::parse(kTool);
  body["tool_choice"] = "required";
  const Reply reply = post("/v1/chat/completions", body);
  EXPECT_EQ(reply.status, 501);
  EXPECT_EQ(reply.headers.at("x-should-retry"), "false");
  body["tool_choice"] = Json::parse(R"({"type":"function","function":{"name":"sub"}})");
  EXPECT_EQ(post("/v1/chat/completions", body).error_param(), "tool_choice.function.name");
  body["tool_choice"]["function"]["name"] = "add";
  EXPECT_EQ(post("/v1/chat/completions", body).status, 501);
  body.erase("tool_choice");
  body["tools"][0]["function"]["name"] = "bad name";
  EXPECT_EQ(post("/v1/chat/completions", body).error_param(), "tools[0].function.name");
  Json conversation = Json::parse(R"({"messages":[{"role":"user","content":"x"},
    {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"add","arguments":"{}"}}]},
    {"role":"tool","tool_call_id":"c1","content":"3"}]})");
  EXPECT_EQ(post("/v1/chat/completions", conversation).status, 200);
}

TEST_F(Chat, ConstraintsAreRefusedNotIgnored) {
  for (const char* format : {"json_object", "json_schema"}) {
    Json body = chat();
    body["response_format"] = {{"type", format}, {"json_schema", {{"name", "a"}, {"schema", Json::object()}}}};
    EXPECT_EQ(post("/v1/chat/completions", body).error_code(), "not_supported");
  }
  Json body = chat();
  body["response_format"] = {{"type", "text"}};
  EXPECT_EQ(post("/v1/chat/completions", body).status, 200);
  body["regex"] = "a*";
  EXPECT_EQ(post("/v1/chat/completions", body).error_param(), "regex");
}

TEST_F(Chat, WrongTypesOfWhatIsNotOfferedAre400) {
  const auto answer = [&](const char* path, const char* name, const char* value) {
    Json body = std::string_view(path).ends_with("chat/completions") ? chat() : Json{{"prompt", "a"}};
    body[name] = Json::parse(value);
    const Reply reply = post(path, body);
    return std::to_string(reply.status) + " " + reply.error_code() + " " + reply.error_param();
  };
  for (const char* path : {"/v1/chat/completions", "/v1/completions"}) {
    for (const char* name : {"regex", "ebnf", "grammar"})
      for (const char* value : {"true", "false", "5", "{}", "[]"})
        EXPECT_EQ(answer(path, name, value), std::string("400 invalid_type ") + name) << value;
    EXPECT_EQ(answer(path, "json_schema", "5"), "400 invalid_type json_schema");
    EXPECT_EQ(answer(path, "response_format", "true"), "400 invalid_type response_format");
    EXPECT_EQ(answer(path, "response_format", "{}"), "400 missing_field response_format.type");
    EXPECT_EQ(answer(path, "response_format", R"({"type":5})"), "400 invalid_type response_format.type");
    EXPECT_EQ(answer(path, "response_format", R"({"type":"xml"})"), "400 unsupported_value response_format.type");
    EXPECT_EQ(answer(path, "response_format", R"({"type":"json_schema"})"), "400 missing_field response_format.json_schema");
    EXPECT_EQ(answer(path, "response_format", R"({"type":"json_schema","json_schema":[]})"), "400 invalid_type response_format.json_schema");
    EXPECT_EQ(answer(path, "response_format", R"({"type":"json_schema","json_schema":{"name":"a","schema":5}})"), "400 invalid_type response_format.json_schema.schema");
    EXPECT_EQ(answer(path, "response_format", R"({"type":"json_schema","json_schema":{"name":"a","schema":{}}})"), "501 not_supported response_format");
    EXPECT_EQ(answer(path, "stream_options", R"({"include_usage":5})"), "400 invalid_type stream_options.include_usage");
  }
  for (const char* name : {"audio", "functions", "web_search_options", "function_call"})
    EXPECT_EQ(answer("/v1/chat/completions", name, "5"), std::string("400 invalid_type ") + name);
  EXPECT_EQ(answer("/v1/chat/completions", "modalities", "[5]"), "400 invalid_type modalities[0]");
  EXPECT_EQ(answer("/v1/chat/completions", "tool_choice", R"({"type":5})"), "400 invalid_type tool_choice.type");
  EXPECT_EQ(answer("/v1/completions", "suffix", "5"), "400 invalid_type suffix");
}

TEST_F(Chat, OneConstraintAtMost) {
  Json body = chat();
  body["regex"] = "a";
  body["grammar"] = "root ::= \"a\"";
  const Reply reply = post("/v1/chat/completions", body);
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.error_param(), "grammar");
  body.erase("grammar");
  body["response_format"] = {{"type", "json_object"}};
  EXPECT_EQ(post("/v1/chat/completions", body).status, 400);
}

TEST_F(Chat, TemplateArguments) {
  const auto answer = [&](const char* arguments) {
    Json body = chat();
    body["chat_template_kwargs"] = Json::parse(arguments);
    const Reply reply = post("/v1/chat/completions", body);
    return reply.status == 200 ? "200" : reply.error_code() + " " + reply.error_param();
  };
  EXPECT_EQ(answer(R"({"open_think":true,"unknown":1.5,"other":"x","none":null})"), "200");
  EXPECT_EQ(answer(R"({"open_think":null})"), "200");
  EXPECT_EQ(answer(R"({"open_think":[]})"), "invalid_type chat_template_kwargs.open_think");
  EXPECT_EQ(answer(R"({"open_think":{}})"), "invalid_type chat_template_kwargs.open_think");
  for (const char* name : {"messages", "tools", "add_generation_prompt", "bos_token", "tokenize", "chat_template", "raise_exception"})
    EXPECT_EQ(answer((std::string("{\"") + name + "\":true}").c_str()), std::string("unsupported_value chat_template_kwargs.") + name);
  EXPECT_EQ(answer("[]"), "invalid_type chat_template_kwargs");
}

TEST_F(Chat, AContinuedMessageBeyondTheWindowIsNotTokenized) {
  Json body = chat();
  body["messages"].push_back({{"role", "assistant"}, {"content", std::string(100000, 'x')}});
  EXPECT_EQ(post("/v1/chat/completions", body).error_code(), "context_length_exceeded");
}

TEST_F(Chat, FailuresBeforeAndAfterTheHead) {
  backend->script = [](const engine::Request&) { return Script{bytes_of("ab"), true}; };
  const Reply whole = post("/v1/chat/completions", chat());
  EXPECT_EQ(whole.status, 500);
  Json body = chat();
  body["stream"] = true;
  const Reply stream = post("/v1/chat/completions", body);
  EXPECT_EQ(stream.status, 200);
  const auto list = events(stream.body);
  EXPECT_EQ(Json::parse(list.back())["error"]["code"], "internal");
  backend->hold = true;
  body["timeout_ms"] = 20;
  EXPECT_EQ(post("/v1/chat/completions", body).error_code(), "timeout");
}

TEST_F(Chat, QueueFull) {
  backend->queue_limit = 2;
  backend->hold = true;  // else the first could be done before the last comes
  Json body = chat();
  body["n"] = 3;
  const Reply reply = post("/v1/chat/completions", body);
  EXPECT_EQ(reply.status, 429);
  EXPECT_EQ(reply.error_code(), "queue_full");
  EXPECT_TRUE(reply.headers.count("retry-after"));
  EXPECT_TRUE(reply.headers.count("retry-after-ms"));
  EXPECT_TRUE(backend->wait_finished(2)) << "those already queued are cancelled";
}

TEST_F(Chat, SeedsOfChoicesDiffer) {
  Json body = chat();
  body["n"] = 2;
  body["seed"] = 7;
  post("/v1/chat/completions", body);
  EXPECT_EQ(backend->requests()[0].sampling.seed, 7u);
  EXPECT_EQ(backend->requests()[1].sampling.seed, 8u);
}

}  // namespace
}  // namespace turbo::server::testing
