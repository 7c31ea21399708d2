#include "text/bpe/pre_tokenizer.h"

#include <span>
#include <utility>

#include "base/nearest.h"
#include "text/bpe/char_class.h"

namespace turbo::text {
namespace {

constexpr size_t no_limit = ~size_t{0};

constexpr PreTokenizerRules qwen2{.name = "qwen2"};
constexpr PreTokenizerRules qwen35{.name = "qwen35", .marks_join_letters = true};
constexpr PreTokenizerRules llama3{.name = "llama-bpe", .ignore_merges = true, .max_digits = 3};
// The cuts of llama-3 for vocabularies whose merges are always followed.
constexpr PreTokenizerRules glm4{.name = "glm4", .max_digits = 3};
constexpr PreTokenizerRules gpt2{.name = "gpt-2",
                                 .ignore_case = false,
                                 .any_prefix = false,
                                 .newlines = false,
                                 .max_digits = no_limit,
                                 .space_before_number = true};
constexpr PreTokenizerRules smollm{
    .name = "smollm", .ignore_case = false, .any_prefix = false, .newlines = false, .numbers_apart = true};

constexpr std::pair<std::string_view, const PreTokenizerRules*> known_names[] = {
    {"qwen2", &qwen2},      {"deepseek-r1-qwen", &qwen2}, {"qwen35", &qwen35},
    {"llama-bpe", &llama3}, {"llama3", &llama3},          {"llama-v3", &llama3},
    {"glm4", &glm4},        {"chatglm-bpe", &glm4},       {"gpt-2", &gpt2},
    {"gpt2", &gpt2},        {"default", &gpt2},           {"smollm", &smollm},
    {"starcoder", &smollm},
};

constexpr std::pair<std::string_view, std::string_view> known_regexes[] = {
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "qwen2"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "qwen35"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "glm4"},
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", "gpt-2"},
};

/// Scans one word; the members are the inputs of word_length.
class Scanner {
 public:
  Scanner(const PreTokenizerRules& rules, std::string_view text) : rules_(rules), text_(text) {}

  /// One past the last byte of the word that starts at `begin`.
  size_t word_end(size_t begin) const {
    const CharStep first = char_at(text_, begin);
    if (rules_.numbers_apart && first.kind == CharClass::number) return begin + first.length;
    if (text_[begin] == '\'')
      if (const size_t length = contraction(begin); length != 0) return begin + length;
    if (is_letter(first.kind)) return letters_end(begin);

    const size_t second = begin + first.length;
    const bool space = text_[begin] == ' ';
    const bool may_lead_letters =
        rules_.any_prefix ? first.kind != CharClass::newline && first.kind != CharClass::number : space;
    if (may_lead_letters && second < text_.size() && is_letter(char_at(text_, second).kind)) return letters_end(second);

    if (first.kind == CharClass::number) return numbers_end(begin);
    if (space && second < text_.size()) {
      const CharClass kind = char_at(text_, second).kind;
      if (kind == CharClass::number && rules_.space_before_number) return numbers_end(second);
      if (is_symbol(kind)) return symbols_end(second);
    }
    if (is_symbol(first.kind)) return symbols_end(begin);
    return white_space_end(begin);
  }

 private:
  bool is_letter(CharClass kind) const {
    return kind == CharClass::letter || (kind == CharClass::mark && rules_.marks_join_letters);
  }
  bool is_symbol(CharClass kind) const {
    return kind == CharClass::other || (kind == CharClass::mark && !rules_.marks_join_letters);
  }

  template <typename Accept>
  size_t run_end(size_t at, Accept accept) const {
    while (at < text_.size()) {
      const CharStep step = char_at(text_, at);
      if (!accept(step.kind)) break;
      at += step.length;
    }
    return at;
  }

  size_t letters_end(size_t at) const {
    return run_end(at, [this](CharClass kind) { return is_letter(kind); });
  }
  size_t numbers_end(size_t at) const {
    size_t left = rules_.max_digits;
    return run_end(at, [&](CharClass kind) { return kind == CharClass::number && left-- > 0; });
  }
  size_t symbols_end(size_t at) const {
    at = run_end(at, [this](CharClass kind) { return is_symbol(kind); });
    if (!rules_.newlines) return at;
    return run_end(at, [](CharClass kind) { return kind == CharClass::newline; });
  }

  size_t white_space_end(size_t begin) const {
    size_t after_newline = 0;
    size_t last = begin;  // where the last character of the run starts
    size_t at = begin;
    while (at < text_.size()) {
      const CharStep step = char_at(text_, at);
      if (step.kind != CharClass::space && step.kind != CharClass::newline) break;
      last = at;
      at += step.length;
      if (step.kind == CharClass::newline) after_newline = at;
    }
    if (rules_.newlines && after_newline != 0) return after_newline;
    if (at == text_.size() || last == begin) return at;
    // Words that stand apart were cut out before the rest was looked at, so the run before one ends its piece.
    if (rules_.numbers_apart && char_at(text_, at).kind == CharClass::number) return at;
    return last;
  }

  // Length of the contraction suffix at the apostrophe, or 0. Ignoring case, s also matches U+017F, its case variant.
  size_t contraction(size_t at) const {
    const std::string_view rest = text_.substr(at + 1, 2);
    const auto letter = [&](size_t i) {
      if (i >= rest.size()) return '\0';
      const char c = rest[i];
      return rules_.ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    };
    switch (letter(0)) {
      case 's':
      case 't':
      case 'm':
      case 'd': return 2;
      case 'r':
      case 'v': return letter(1) == 'e' ? 3 : 0;
      case 'l': return letter(1) == 'l' ? 3 : 0;
      default: return rules_.ignore_case && rest == "\xC5\xBF" ? 3 : 0;
    }
  }

  const PreTokenizerRules& rules_;
  const std::string_view text_;
};

}  // namespace

Result<const PreTokenizerRules*> find_pre_tokenizer(const std::string& name) {
  std::vector<std::string> names;
  std::string listed;
  for (const auto& [known, rules] : known_names) {
    if (known == name) return rules;
    names.emplace_back(known);
    listed += (listed.empty() ? "" : ", ") + names.back();
  }
  const std::string shown = name.substr(0, 64);
  std::string hint = "known pre-tokenizers: " + listed;
  if (const std::string nearest = nearest_name(name, names); !nearest.empty())
    hint += "; did you mean " + nearest + "?";
  return error(Code::unsupported, "tokenizer: unknown pre-tokenizer \"{}\"", shown).with_hint(hint);
}

std::string_view pre_name_of_regex(std::string_view regex) {
  for (const auto& [known, name] : known_regexes)
    if (known == regex) return name;
  return {};
}

size_t word_length(const PreTokenizerRules& rules, std::string_view text, size_t at) {
  return Scanner(rules, text).word_end(at) - at;
}

}  // namespace turbo::text
