// Chat templates: the Jinja2 subset that model files carry, run as a bounded interpreter.
//
// Semantics follow Jinja2 as the model publishers configure it: trim_blocks and lstrip_blocks on, loop controls,
// raise_exception(), strftime_now(), a plain JSON `tojson`, `{% generation %}` passed through, no auto-escaping.
// A template comes from an untrusted file: it can read only the variables it is given, does no I/O, and stops at the
// limits of template_limits.h. A parsed ChatTemplate is immutable; any number of threads may render it at once.
#pragma once

#include <nlohmann/json.hpp>

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/template/template_limits.h"

namespace turbo::text {

/// How a template wants a message's `content` when it is a list of text parts.
enum class ContentShape {
  text_only,        ///< prints lists as they are, so parts are joined to one string first
  text_or_parts,    ///< reads both
  parts_only,       ///< reads only lists, so strings are wrapped in one text part
};

class ParsedTemplate;

class ChatTemplate {
 public:
  /// Parses and probes the template. Errors read "chat template: line 12: unknown filter 'foo'".
  static Result<ChatTemplate> parse(std::string source, TemplateLimits limits = {});

  /// Renders with the members of `variables` (an object) as variables. Errors as above, except that a template's own
  /// raise_exception(text) gives `text` alone as the message. [any thread]
  Result<std::string> render(const nlohmann::ordered_json& variables, const RenderOptions& options = {}) const;

  /// Whether the template reads a variable of that name, such as "tools" or "enable_thinking".
  bool mentions(std::string_view name) const;

  const std::string& source() const;
  const TemplateLimits& limits() const;
  ContentShape content_shape() const { return content_shape_; }
  /// Whether tool-call arguments must stay JSON text; otherwise they are given as the object they spell.
  bool wants_argument_text() const { return wants_argument_text_; }

 private:
  explicit ChatTemplate(std::shared_ptr<const ParsedTemplate> parsed) : parsed_(std::move(parsed)) {}
  Result<std::string> render_within(const TemplateLimits& limits, const nlohmann::ordered_json& variables,
                                    const RenderOptions& options) const;
  void probe();

  std::shared_ptr<const ParsedTemplate> parsed_;
  ContentShape content_shape_ = ContentShape::text_only;
  bool wants_argument_text_ = false;
};

struct ChatInput {
  nlohmann::ordered_json messages;   ///< array of objects, as in a chat-completions request
  nlohmann::ordered_json tools;      ///< array, or null when there are none
  bool add_generation_prompt = true;
  nlohmann::ordered_json extra;      ///< chat_template_kwargs: object or null; may not replace the names set here
  std::string bos_token, eos_token;
  RenderOptions options;
};

/// Whether chat_template_kwargs may not set a variable of this name: what render_chat() sets itself, and names that switch
/// tokenization elsewhere.
bool is_reserved_variable(std::string_view name);

/// Renders a conversation, giving content and tool-call arguments in the shape the template reads. Text parts are
/// joined by newlines where the template wants one string. [any thread]
Result<std::string> render_chat(const ChatTemplate& chat_template, const ChatInput& input);

}  // namespace turbo::text
