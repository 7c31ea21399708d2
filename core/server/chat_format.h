// Chat completions on the wire.
#pragma once

#include "server/generation.h"

namespace turbo::server {

std::shared_ptr<const AnswerFormat> make_chat_format(const text::Tokenizer& tokenizer);

}  // namespace turbo::server
