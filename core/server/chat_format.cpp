#include "server/chat_format.h"

#include "server/scores.h"

namespace turbo::server {
namespace {

Json tool_begin(const Delta& delta, bool with_index) {
  Json call = Json::object();
  if (with_index) call["index"] = delta.tool;
  call["id"] = delta.tool_id;
  call["type"] = "function";
  call["function"] = Json{{"name", delta.tool_name}, {"arguments", ""}};
  return call;
}

Json delta_json(const Delta& delta) {
  switch (delta.kind) {
    case Delta::Kind::content: return Json{{"content", delta.text}};
    case Delta::Kind::reasoning: return Json{{"reasoning_content", delta.text}};
    case Delta::Kind::tool_begin: return Json{{"tool_calls", Json::array({tool_begin(delta, true)})}};
    case Delta::Kind::tool_arguments:
      return Json{{"tool_calls", Json::array({Json{{"index", delta.tool}, {"function", {{"arguments", delta.text}}}}})}};
  }
  return Json::object();
}

class ChatFormat : public AnswerFormat {
 public:
  explicit ChatFormat(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  std::string first(const Answer& answer, uint32_t choice) const override {
    return chunk(answer, choice, Json{{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
  }
  std::vector<std::string> deltas(const Answer& answer, uint32_t choice, const Choice::Output& output) const override {
    std::vector<std::string> events;
    Json logprobs = answer.logprobs && !output.scores.empty() ? chat_logprobs(output.scores, tokenizer_) : Json(nullptr);
    for (const Delta& delta : output.deltas) {
      events.push_back(chunk(answer, choice, delta_json(delta), std::move(logprobs), nullptr));
      logprobs = nullptr;
    }
    if (events.empty()) events.push_back(chunk(answer, choice, Json{{"content", ""}}, std::move(logprobs), nullptr));
    return events;
  }
  std::string last(const Answer& answer, uint32_t choice, const std::string& reason) const override {
    return chunk(answer, choice, Json::object(), nullptr, reason);
  }
  std::string usage(const Answer& answer, const AnswerUsage& usage, const engine::Finish* timings) const override {
    Json body = envelope(answer, "chat.completion.chunk", Json::array());
    body["usage"] = usage_json(usage);
    if (timings) body["timings"] = timings_json(*timings);
    return to_text(body);
  }
  std::string whole(const Answer& answer, const std::vector<Whole>& wholes, const AnswerUsage& usage,
                    const engine::Finish* timings) const override {
    Json choices = Json::array();
    for (uint32_t i = 0; i < wholes.size(); ++i)
      choices.push_back(Json{{"index", i},
                             {"message", message(wholes[i].output)},
                             {"logprobs", answer.logprobs ? chat_logprobs(wholes[i].output.scores, tokenizer_) : Json(nullptr)},
                             {"finish_reason", wholes[i].finish_reason}});
    Json body = envelope(answer, "chat.completion", std::move(choices));
    body["usage"] = usage_json(usage);
    if (timings) body["timings"] = timings_json(*timings);
    return to_text(body);
  }

 private:
  static Json message(const Choice::Output& output) {
    std::string content, reasoning;
    Json calls = Json::array();
    for (const Delta& delta : output.deltas) switch (delta.kind) {
        case Delta::Kind::content: content += delta.text; break;
        case Delta::Kind::reasoning: reasoning += delta.text; break;
        case Delta::Kind::tool_begin: calls.push_back(tool_begin(delta, false)); break;
        case Delta::Kind::tool_arguments:
          calls.back()["function"]["arguments"].get_ref<std::string&>() += delta.text;
          break;
      }
    Json body{{"role", "assistant"},
              {"content", content.empty() && !calls.empty() ? Json(nullptr) : Json(content)},
              {"refusal", nullptr}};
    if (!reasoning.empty()) body["reasoning_content"] = reasoning;
    if (!calls.empty()) body["tool_calls"] = std::move(calls);
    return body;
  }
  static std::string chunk(const Answer& answer, uint32_t choice, Json delta, Json logprobs, Json reason) {
    Json body = envelope(answer, "chat.completion.chunk",
                         Json::array({Json{{"index", choice}, {"delta", std::move(delta)},
                                           {"logprobs", std::move(logprobs)}, {"finish_reason", std::move(reason)}}}));
    if (answer.include_usage) body["usage"] = nullptr;
    return to_text(body);
  }
  static Json envelope(const Answer& answer, const char* object, Json choices) {
    return Json{{"id", answer.id},       {"object", object},
                {"created", answer.created}, {"model", answer.model},
                {"system_fingerprint", answer.fingerprint}, {"choices", std::move(choices)}};
  }
  const text::Tokenizer& tokenizer_;
};

}  // namespace

std::shared_ptr<const AnswerFormat> make_chat_format(const text::Tokenizer& tokenizer) {
  return std::make_shared<ChatFormat>(tokenizer);
}

}  // namespace turbo::server
