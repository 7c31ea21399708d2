// POST /v1/chat/completions: the conversation into a prompt, the request into a plan, and the answer's form.
#pragma once

#include <atomic>

#include "server/generation_request.h"

namespace turbo::server {

struct ChatPromptText {
  std::string text;
  std::vector<int32_t> ids;
  bool has_tools = false;  // the template was given tools
  std::vector<std::string> tool_names;
};
/// Checks messages, tools and template arguments, and renders. `body` has passed its table.
/// `stop`, once set by another thread, ends the tokenizing early with whatever there is.
/// A conversation that must have more than `max_tokens` tokens is refused before it is tokenized.
Checked<ChatPromptText> render_conversation(const Json& body, const Backend& backend, size_t max_tokens = SIZE_MAX,
                                            const std::atomic<bool>* stop = nullptr);

Checked<GenerationPlan> plan_chat(const Json& body, const Backend& backend, const ServerLimits& limits);

}  // namespace turbo::server
