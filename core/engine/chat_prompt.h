// A conversation into prompt ids: the model's template rendered, then tokenized so that only the template's own
// special tokens are special. Pure, any thread.
#pragma once

#include <atomic>
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
  size_t too_long_by_bound = 0;  // a lower bound of its tokens, when that is already too many
};
/// `stop` is that of text::EncodeOptions.
/// A text that must have more than `max_tokens` tokens is not tokenized: ids stay empty and too_long_by_bound is set.
Result<ChatPrompt> make_chat_prompt(const text::ChatTemplate& chat_template, const text::Tokenizer& tokenizer,
                                    text::ChatInput input, size_t max_tokens = SIZE_MAX,
                                    const std::atomic<bool>* stop = nullptr);

}  // namespace turbo::engine
