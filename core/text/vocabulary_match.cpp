#include "text/vocabulary_match.h"

#include <algorithm>

namespace turbo::text {
namespace {

constexpr size_t kShown = 48;  // bytes of a token in a message

// Printable and bounded: a vocabulary may hold anything.
std::string shown(std::string_view bytes) {
  std::string text = "'";
  for (const char c : bytes.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f || c == '\'' || c == '\\') text += fmt::format("\\x{:02x}", byte);
    else text += c;
  }
  return text + (bytes.size() > kShown ? "...'" : "'");
}

Status compare(const char* name, std::optional<int32_t> target, std::optional<int32_t> draft) {
  if (!target || !draft || *target == *draft) return Status::ok();
  return error(Code::invalid_argument, "the tokenizers differ: the {} token is {} in the target and {} in the draft model", name, *target, *draft);
}

}  // namespace

Result<uint32_t> shared_vocabulary(const Tokenizer& target, const Tokenizer& draft) {
  const int32_t shared = std::min(target.vocab_size(), draft.vocab_size());
  for (int32_t id = 0; id < shared; ++id) {
    const std::string_view ours = target.token_bytes(id), theirs = draft.token_bytes(id);
    if (ours.empty() || theirs.empty()) continue;
    if (ours != theirs)
      return error(Code::invalid_argument, "the tokenizers differ: token {} is {} in the target and {} in the draft model", id, shown(ours), shown(theirs));
    if (target.is_special(id) != draft.is_special(id))
      return error(Code::invalid_argument, "the tokenizers differ: token {}, {}, is a control token only in the {}", id, shown(ours),
                   target.is_special(id) ? "target" : "draft model");
  }
  TURBO_RETURN_IF_ERROR(compare("begin", target.bos(), draft.bos()));
  TURBO_RETURN_IF_ERROR(compare("end", target.eos(), draft.eos()));
  TURBO_RETURN_IF_ERROR(compare("end-of-turn", target.eot(), draft.eot()));
  return static_cast<uint32_t>(shared);
}

}  // namespace turbo::text
