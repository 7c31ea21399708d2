// Byte-level BPE tokenizer: text <-> token ids, exactly as the vocabulary's own tokenizer does it.
//
// Vocabularies come from a GGUF file's tokenizer.ggml.* metadata or from a Hugging Face folder, and may be hostile:
// create() checks everything, and no text makes encode() superlinear (merging is O(n log n)). Immutable once made; any
// thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace turbo::text {

/// Token types as GGUF numbers them.
enum class TokenType : int32_t {
  undefined = 0,
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

/// A vocabulary as a file holds it, unchecked.
struct TokenizerData {
  std::string model = "gpt2";  ///< tokenizer.ggml.model; only "gpt2" (byte-level BPE) is supported
  std::string pre;             ///< pre-tokenizer name: qwen2, qwen35, llama-bpe, glm4, gpt-2, smollm and aliases
  std::vector<std::string>
      tokens;                  ///< index = id; ordinary tokens in the printable byte spelling, special ones as they are
  std::vector<int32_t> types;  ///< TokenType per token; empty = all normal
  std::vector<std::string> merges;  ///< "left right", split at the first space after position 0; rank = index
  std::optional<int32_t> bos, eos, eot, pad;
  bool add_bos = false, add_eos = false;
  std::vector<int32_t> extra_eog;  ///< further ids that end generation
  bool ignore_merges = false;      ///< a word that is a token is taken whole; llama-bpe implies it
  bool nfc = false;                ///< normalise to NFC first. The GGUF form never does
  std::string chat_template;
};

/// Read tokenizer.json, tokenizer_config.json, generation_config.json and chat_template.jinja of a Hugging Face folder;
/// all but the first are optional. Settings that would change ids and are not implemented are refused (unsupported).
Result<TokenizerData> read_tokenizer_json(const std::filesystem::path& folder);

struct EncodeOptions {
  bool parse_special = true;  ///< false: the text of control and user-defined tokens is ordinary text
  bool add_special = true;    ///< begin and end token where the model wants them
  const std::atomic<bool>* stop = nullptr;  ///< once another thread sets it, encode() soon gives what it has so far
};

class Tokenizer {
 public:
  /// corrupt_input for a vocabulary that contradicts itself, unsupported for another model or pre-tokenizer.
  static Result<std::shared_ptr<const Tokenizer>> create(TokenizerData data);
  ~Tokenizer();

  /// Any bytes are accepted, and decode() gives them back unless the vocabulary asks for NFC or lacks byte tokens.
  /// Invalid UTF-8 is cut like symbols, byte by byte.
  std::vector<int32_t> encode(std::string_view utf8, const EncodeOptions& options = {}) const;

  /// A lower bound of the length of encode(text), without encoding: for refusing what is far too long at once.
  size_t least_tokens(std::string_view text) const;

  /// The bytes of the tokens, joined; not necessarily valid UTF-8 (see StreamDecoder). Ids out of range stand for
  /// nothing.
  std::string decode(std::span<const int32_t> ids, bool with_special = true) const;

  /// The bytes that a token stands for: special tokens their text; unused ones and ids out of range nothing.
  std::string_view token_bytes(int32_t id) const;

  /// Control and unknown tokens: not part of the answer's text. User-defined ones such as <think> are text.
  bool is_special(int32_t id) const;
  /// Ends generation: eos, eot, extra_eog and the well-known end tokens that the vocabulary holds as control or
  /// user-defined.
  bool is_end(int32_t id) const;
  /// All ids that end generation, in increasing order.
  std::span<const int32_t> end_ids() const;

  int32_t vocab_size() const;
  std::optional<int32_t> bos() const;
  std::optional<int32_t> eos() const;
  std::optional<int32_t> eot() const;
  std::optional<int32_t> pad() const;
  bool add_bos() const;
  bool add_eos() const;
  const std::string& pre() const;
  const std::string& chat_template() const;

  /// The id of a token given its text as the vocabulary spells it ("Ġhello", "<|im_end|>").
  std::optional<int32_t> find(std::string_view token_text) const;

  /// Bytes that no token stands for. encode() turns them into the unknown token, or drops them when there is none.
  int32_t n_missing_bytes() const;

  /// Equal for equal token texts, types, merges and rules: what a draft model or a saved session is checked against.
  uint64_t fingerprint() const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace turbo::text
