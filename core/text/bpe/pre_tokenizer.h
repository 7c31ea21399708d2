// Cutting text into the words that byte-level BPE works on.
//
// Each family publishes a regular expression; here each is a hand-written scanner that gives the same cuts in linear
// time on any bytes. Immutable, any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace turbo::text {

/// What tells the families apart. The alternatives, in the order in which they are tried at each position:
///   1. an English contraction suffix: 's 't 're 've 'm 'll 'd
///   2. letters, with one leading character: a space, or (any_prefix) anything but CR, LF, letter and number
///   3. numbers, at most max_digits; gpt-2 lets them take a leading space
///   4. an optional space, then characters that are neither white space, letter nor number; (newlines) then any CR/LF
///   5. (newlines) white space up to and including the last CR/LF of the run
///   6. white space but for the last character, when something else follows; else white space
struct PreTokenizerRules {
  std::string_view name;
  bool ignore_case = true;  ///< of contractions
  bool any_prefix = true;
  bool newlines = true;
  bool marks_join_letters = false;  ///< \p{M} counts as a letter
  bool numbers_apart = false;       ///< each number is a word before anything else is looked at
  bool ignore_merges = false;       ///< words that are tokens are taken whole, whatever the merges say
  size_t max_digits = 1;
  bool space_before_number = false;
};

/// The rules for a `tokenizer.ggml.pre` name; unknown names are an error that lists the known ones.
Result<const PreTokenizerRules*> find_pre_tokenizer(const std::string& name);

/// The `pre` name for a regular expression found in a tokenizer.json, or empty when it is not a known one.
std::string_view pre_name_of_regex(std::string_view regex);

/// Bytes of the word that starts at text[at]; at < text.size(), result at least 1. `text` ends where the piece between
/// two special tokens ends: the rules look no further.
size_t word_length(const PreTokenizerRules& rules, std::string_view text, size_t at);

}  // namespace turbo::text
