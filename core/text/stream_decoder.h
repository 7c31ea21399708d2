// Tokens in, valid UTF-8 out. One per request; one thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "text/tokenizer.h"

namespace turbo::text {

/// The joined results of push() and finish() equal sanitize_utf8(tokenizer.decode(all ids)): whole characters only,
/// each maximal invalid sequence as one U+FFFD, a lone tail as U+FFFD at the end.
class StreamDecoder {
 public:
  /// The tokenizer must outlive the decoder. skip_special leaves out control tokens.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  /// What this token makes certain; bytes of an unfinished character wait for the next one.
  std::string push(int32_t id);
  /// The end of the text; the decoder may then be used for a new one.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  const bool skip_special_;
  std::string waiting_;  // at most 3 bytes between calls
};

}  // namespace turbo::text
