#include "text/template/chat_template.h"

#include <exception>
#include <new>

#include "text/template/interpreter.h"
#include "text/template/lexer.h"
#include "text/template/parser.h"
#include "text/template/utf8.h"

namespace turbo::text {

/// A template's source and tree, shared by all copies of a ChatTemplate.
class ParsedTemplate {
 public:
  std::string source;
  TemplateLimits limits;
  jinja::Ast ast;
};

namespace {

Status status_of(const jinja::TemplateError& e) {
  if (e.raised) return Status(e.code, e.message, "the model's chat template refuses this conversation");
  std::string where = e.line > 0 ? fmt::format("line {}: ", e.line) : std::string();
  Status status(e.code, "chat template: " + where + e.message);
  return e.code == Code::resource_exhausted ? status.with_hint("use a simpler template or a shorter conversation") : status;
}

// Runs `action`, turning whatever it throws into a Status.
template <typename Action>
auto guarded(Action action) -> Result<decltype(action())> {
  try {
    return action();
  } catch (const jinja::TemplateError& e) {
    return status_of(e);
  } catch (const std::bad_alloc&) {
    return Status(Code::resource_exhausted, "chat template: out of memory");
  } catch (const std::exception& e) {
    return Status(Code::internal, std::string("chat template: ") + e.what());
  }
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string source, TemplateLimits limits) {
  if (source.size() > limits.max_source_bytes) {
    return error(Code::resource_exhausted, "chat template: {} bytes of text, more than {}", source.size(), limits.max_source_bytes)
        .with_hint("use a shorter template");
  }
  auto parsed = guarded([&]() -> std::shared_ptr<const ParsedTemplate> {
    auto out = std::make_shared<ParsedTemplate>();
    out->ast = jinja::Parser(jinja::tokenize(source), limits).parse();
    out->source = std::move(source);
    out->limits = limits;
    return out;
  });
  if (!parsed) return parsed.status();
  ChatTemplate out(std::move(*parsed));
  out.probe();
  return out;
}

Result<std::string> ChatTemplate::render(const nlohmann::ordered_json& variables, const RenderOptions& options) const {
  return render_within(parsed_->limits, variables, options);
}

Result<std::string> ChatTemplate::render_within(const TemplateLimits& limits, const nlohmann::ordered_json& variables,
                                                const RenderOptions& options) const {
  if (!variables.is_object()) return Status(Code::invalid_argument, "chat template: variables must be a JSON object");
  return guarded([&] {
    jinja::Heap heap(limits);
    return jinja::Interpreter(parsed_->ast, heap, options).run(variables);
  });
}

bool ChatTemplate::mentions(std::string_view name) const {
  int symbol = parsed_->ast.symbols.find(std::string(name));
  return symbol >= 0 && parsed_->ast.read[static_cast<size_t>(symbol)];
}

const std::string& ChatTemplate::source() const { return parsed_->source; }

const TemplateLimits& ChatTemplate::limits() const { return parsed_->limits; }

// Tries tiny conversations to learn which shapes of content and of tool-call arguments the template reads. Templates
// differ in ways that no look at the text can settle; what they print does. Failing renders simply decide nothing.
void ChatTemplate::probe() {
  using Json = nlohmann::ordered_json;
  static const std::string kMark = "turboprobe";
  TemplateLimits limits = parsed_->limits;
  limits.max_steps = std::min<uint64_t>(limits.max_steps, 200'000);
  limits.max_output_bytes = std::min<size_t>(limits.max_output_bytes, size_t{1} << 20);
  limits.max_value_bytes = std::min<size_t>(limits.max_value_bytes, size_t{16} << 20);
  auto attempt = [&](Json messages) {
    Json variables = {{"messages", std::move(messages)}, {"tools", nullptr}, {"documents", nullptr}, {"add_generation_prompt", true},
                      {"bos_token", ""}, {"eos_token", ""}};
    auto text = render_within(limits, variables, {});
    return text ? *text : std::string();
  };
  auto has = [](const std::string& text, const std::string& what) { return text.find(what) != std::string::npos; };

  std::string from_text = attempt(Json::array({{{"role", "user"}, {"content", kMark}}}));
  Json parts = Json::array({{{"type", "text"}, {"text", kMark}}});
  std::string from_parts = attempt(Json::array({{{"role", "user"}, {"content", parts}}}));
  if (has(from_text, kMark)) {
    content_shape_ = from_parts == from_text ? ContentShape::text_or_parts : ContentShape::text_only;
  } else if (has(from_parts, kMark)) {
    content_shape_ = ContentShape::parts_only;
  }

  auto with_call = [&](Json arguments) {
    Json call = {{"id", "call00001"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", std::move(arguments)}}}};
    Json user = {{"role", "user"}, {"content", content_shape_ == ContentShape::parts_only ? parts : Json(kMark)}};
    return attempt(Json::array({user, {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}}}));
  };
  std::string as_object = with_call({{"probekey", 1}}), as_text = with_call("{\"probekey\": 1}");
  wants_argument_text_ = has(as_text, "\"probekey\"") && !has(as_object, "\"probekey\"") && !has(as_object, "<probekey");
}

}  // namespace turbo::text
