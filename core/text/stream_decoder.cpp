#include "text/stream_decoder.h"

#include "text/utf8.h"

namespace turbo::text {

std::string StreamDecoder::push(int32_t id) {
  if (skip_special_ && tokenizer_.is_special(id)) return {};
  waiting_ += tokenizer_.token_bytes(id);
  std::string out;
  waiting_.erase(0, append_sanitized(out, waiting_, false));
  return out;
}

std::string StreamDecoder::finish() {
  std::string out = sanitize_utf8(waiting_);
  waiting_.clear();
  return out;
}

}  // namespace turbo::text
