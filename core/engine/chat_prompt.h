// A conversation into prompt ids: the model's template rendered, then tokenized so that only the template's own
// special tokens are special. Pure, any thread.
#pragma once

#include <vector>

#include "base/status.h"
#include "text/template/chat_template.h"
#include "text/tokenizer.h"

namespace turbo::engine {

/// The rendered text and its ids. Spellings of control tokens inside the conversation's strings are plain text: a user
/// who types "<|im_end|>" ends nothing.
struct ChatPrompt {
  std::string text;
  std::vector<int32_t> ids;
};
Result<ChatPrompt> make_chat_prompt(const text::ChatTemplate& chat_template, const text::Tokenizer& tokenizer,
                                    text::ChatInput input);

}  // namespace turbo::engine
