#include "engine/chat_prompt.h"

#include <algorithm>

namespace turbo::engine {
namespace {

using Json = nlohmann::ordered_json;

// A marker code point of the private use area is put inside every control-token spelling of the conversation; after
// rendering the text is cut there, so the tokenizer never sees the spelling whole.
constexpr char32_t kFirstMarker = 0xF0000, kLastMarker = 0xF0FFF;

std::string utf8(char32_t c) {
  return {static_cast<char>(0xF0 | (c >> 18)), static_cast<char>(0x80 | ((c >> 12) & 0x3F)),
          static_cast<char>(0x80 | ((c >> 6) & 0x3F)), static_cast<char>(0x80 | (c & 0x3F))};
}

template <typename Visit>
void for_each_string(Json& value, const Visit& visit) {
  if (value.is_string()) visit(value.get_ref<std::string&>());
  else if (value.is_structured())
    for (auto& element : value) for_each_string(element, visit);
}

class Protector {
 public:
  explicit Protector(const text::Tokenizer& tokenizer) {
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
      if (tokenizer.is_special(id) && tokenizer.token_bytes(id).size() > 1) spellings_.push_back(tokenizer.token_bytes(id));
  }

  /// A marker that occurs nowhere in the conversation.
  bool choose_marker(const std::string& conversation, const std::string& source) {
    for (char32_t c = kFirstMarker; c <= kLastMarker; ++c) {
      marker_ = utf8(c);
      if (conversation.find(marker_) == std::string::npos && source.find(marker_) == std::string::npos) return true;
    }
    return false;
  }
  void protect(std::string& text) const {
    for (const std::string_view spelling : spellings_)
      for (size_t at = text.find(spelling); at != std::string::npos; at = text.find(spelling, at + spelling.size() + marker_.size()))
        text.insert(at + first_character(spelling), marker_);
  }
  const std::string& marker() const { return marker_; }

 private:
  static size_t first_character(std::string_view text) {
    size_t n = 1;
    while (n < text.size() && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) ++n;
    return n;
  }
  std::vector<std::string_view> spellings_;
  std::string marker_;
};

}  // namespace

Result<ChatPrompt> make_chat_prompt(const text::ChatTemplate& chat_template, const text::Tokenizer& tokenizer,
                                    text::ChatInput input, size_t max_tokens, const std::atomic<bool>* stop) {
  Protector protector(tokenizer);
  const std::string conversation = input.messages.dump(-1, ' ', false, Json::error_handler_t::replace) +
                                   input.tools.dump(-1, ' ', false, Json::error_handler_t::replace) +
                                   input.extra.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (!protector.choose_marker(conversation, chat_template.source()))
    return Status(Code::invalid_argument, "the conversation uses every private code point that turbo could mark it with");
  const auto protect = [&](std::string& text) { protector.protect(text); };
  for_each_string(input.messages, protect);
  for_each_string(input.tools, protect);
  for_each_string(input.extra, protect);
  if (const auto bos = tokenizer.bos(); bos && input.bos_token.empty()) input.bos_token = tokenizer.token_bytes(*bos);
  if (const auto eos = tokenizer.eos(); eos && input.eos_token.empty()) input.eos_token = tokenizer.token_bytes(*eos);
  TURBO_ASSIGN(const std::string rendered, text::render_chat(chat_template, input));
  ChatPrompt prompt;
  if (const size_t least = tokenizer.least_tokens(rendered); least > max_tokens) {
    prompt.text = rendered;
    prompt.too_long_by_bound = least;
    return prompt;
  }
  // The template writes its own begin token; adding another would double it.
  const text::EncodeOptions options{.parse_special = true, .add_special = false, .stop = stop};
  size_t begin = 0;
  while (begin <= rendered.size()) {
    const size_t end = std::min(rendered.find(protector.marker(), begin), rendered.size());
    const std::string_view piece(rendered.data() + begin, end - begin);
    const std::vector<int32_t> ids = tokenizer.encode(piece, options);
    prompt.ids.insert(prompt.ids.end(), ids.begin(), ids.end());
    prompt.text += piece;
    begin = end + protector.marker().size();
  }
  return prompt;
}

}  // namespace turbo::engine
