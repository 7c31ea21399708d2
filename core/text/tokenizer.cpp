#include "text/tokenizer.h"

#include <algorithm>
#include <atomic>
#include <new>

#include "text/bpe/nfc.h"
#include "text/bpe/pre_tokenizer.h"
#include "text/bpe/vocabulary.h"
#include "text/multi_match.h"

namespace turbo::text {
namespace {

// Longer words are cut, so that positions inside one fit 32 bits.
constexpr size_t max_word_bytes = size_t{1} << 28;

// Spellings that end generation in published models, whatever the metadata says.
constexpr std::string_view end_spellings[] = {
    "<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>",  "<|end|>",
    "<end_of_turn>", "</s>",       "<|return|>", "<|call|>",        "<|fim_pad|>", "<|repo_name|>",
    "<|file_sep|>",  "<fim_pad>",  "<EOT>",      "<eos>",           "<reponame>",  "<end_of_utterance>",
};

class Fnv {
 public:
  void add(std::string_view bytes) {
    add(bytes.size());
    for (const char c : bytes) state_ = (state_ ^ static_cast<uint8_t>(c)) * prime;
  }
  void add(uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) state_ = (state_ ^ (value >> shift & 0xFF)) * prime;
  }
  uint64_t value() const { return state_; }

 private:
  static constexpr uint64_t prime = 0x100000001B3u;
  uint64_t state_ = 0xCBF29CE484222325u;
};

uint64_t fingerprint_of(const TokenizerData& data, const PreTokenizerRules& rules) {
  Fnv hash;
  hash.add(rules.name);
  hash.add(data.ignore_merges << 1 | data.nfc);
  for (const std::string& token : data.tokens) hash.add(token);
  for (const int32_t type : data.types) hash.add(static_cast<uint64_t>(type));
  for (const std::string& merge : data.merges) hash.add(merge);
  return hash.value();
}

}  // namespace

struct Tokenizer::State {
  // What BPE makes of a token's own bytes, found out when a word equals it for the first time. Every thread finds the
  // same, so a relaxed byte per token is enough.
  enum : uint8_t { unexplored = 0, itself = 1, other = 2 };

  Vocabulary vocabulary;
  const PreTokenizerRules* rules = nullptr;
  MultiMatch specials;  // pattern index -> vocabulary.special_ids()
  mutable std::vector<std::atomic<uint8_t>> reachable;
  std::vector<int32_t> end_ids;
  std::optional<int32_t> bos, eos, eot, pad;
  bool add_bos = false, add_eos = false, ignore_merges = false, nfc = false;
  int32_t n_missing_bytes = 0;
  size_t longest_token_bytes = 1;
  std::string pre, chat_template;
  uint64_t fingerprint = 0;

  struct Scratch {
    std::vector<int32_t> symbols;
    Merger::Scratch merging;
  };

  Status take_ids(const TokenizerData& data);
  void encode_plain(std::string_view text, std::vector<int32_t>& out, Scratch& scratch, const std::atomic<bool>* stop) const;
  void encode_word(std::string_view word, std::vector<int32_t>& out, Scratch& scratch) const;
  void split_bytes(std::string_view word, std::vector<int32_t>& symbols) const;
};

Status Tokenizer::State::take_ids(const TokenizerData& data) {
  const auto check = [this](const char* name, std::optional<int32_t> id) {
    if (!id || vocabulary.contains(*id)) return Status::ok();
    return error(Code::corrupt_input, "tokenizer: {} token id is {}, the vocabulary has {} tokens", name, *id,
                 vocabulary.size());
  };
  TURBO_RETURN_IF_ERROR(check("bos", data.bos));
  TURBO_RETURN_IF_ERROR(check("eos", data.eos));
  TURBO_RETURN_IF_ERROR(check("eot", data.eot));
  TURBO_RETURN_IF_ERROR(check("pad", data.pad));
  for (const int32_t id : data.extra_eog) TURBO_RETURN_IF_ERROR(check("end-of-generation", id));
  if (data.add_bos && !data.bos) return error(Code::corrupt_input, "tokenizer: asks for a bos token but names none");
  if (data.add_eos && !data.eos) return error(Code::corrupt_input, "tokenizer: asks for an eos token but names none");
  bos = data.bos;
  eos = data.eos;
  eot = data.eot;
  pad = data.pad;
  add_bos = data.add_bos;
  add_eos = data.add_eos;
  end_ids = data.extra_eog;
  if (eos) end_ids.push_back(*eos);
  if (eot) end_ids.push_back(*eot);
  for (const std::string_view spelling : end_spellings)
    if (const int32_t id = vocabulary.special(spelling); id >= 0) end_ids.push_back(id);
  std::sort(end_ids.begin(), end_ids.end());
  end_ids.erase(std::unique(end_ids.begin(), end_ids.end()), end_ids.end());
  return Status::ok();
}

// The text between special tokens.
void Tokenizer::State::encode_plain(std::string_view text, std::vector<int32_t>& out, Scratch& scratch,
                                    const std::atomic<bool>* stop) const {
  std::string normalised;
  if (nfc) {
    normalised = to_nfc(text);
    text = normalised;
  }
  for (size_t at = 0; at < text.size() && !(stop && stop->load(std::memory_order_relaxed));) {
    const size_t length = std::min(word_length(*rules, text, at), max_word_bytes);
    encode_word(text.substr(at, length), out, scratch);
    at += length;
  }
}

void Tokenizer::State::split_bytes(std::string_view word, std::vector<int32_t>& symbols) const {
  symbols.clear();
  for (const char c : word) {
    int32_t id = vocabulary.byte_token(static_cast<uint8_t>(c));
    if (id < 0) id = vocabulary.unknown();
    if (id >= 0) symbols.push_back(id);
  }
}

void Tokenizer::State::encode_word(std::string_view word, std::vector<int32_t>& out, Scratch& scratch) const {
  const int32_t whole = vocabulary.word(word);
  if (whole >= 0 && (ignore_merges || reachable[whole].load(std::memory_order_relaxed) == itself)) {
    out.push_back(whole);
    return;
  }
  split_bytes(word, scratch.symbols);
  vocabulary.merger().merge(scratch.symbols, scratch.merging);
  out.insert(out.end(), scratch.symbols.begin(), scratch.symbols.end());
  if (whole >= 0) {
    const bool same = scratch.symbols.size() == 1 && scratch.symbols[0] == whole;
    reachable[whole].store(same ? itself : other, std::memory_order_relaxed);
  }
}

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::create(TokenizerData data) try {
  if (data.model != "gpt2")
    return error(Code::unsupported, "tokenizer: unknown model \"{}\"", data.model.substr(0, 64))
        .with_hint("supported is gpt2 (byte-level BPE)");
  auto state = std::make_unique<State>();
  TURBO_ASSIGN(state->rules, find_pre_tokenizer(data.pre));
  data.ignore_merges = data.ignore_merges || state->rules->ignore_merges;
  TURBO_RETURN_IF_ERROR(state->vocabulary.build(data));
  TURBO_RETURN_IF_ERROR(state->take_ids(data));
  state->ignore_merges = data.ignore_merges;
  state->nfc = data.nfc;
  const Vocabulary& vocabulary = state->vocabulary;
  state->reachable = std::vector<std::atomic<uint8_t>>(static_cast<size_t>(vocabulary.size()));
  std::vector<std::string_view> patterns;
  for (const int32_t id : vocabulary.special_ids()) patterns.push_back(vocabulary.bytes(id));
  state->specials = MultiMatch(patterns, MultiMatch::Kind::first_start);
  for (int byte = 0; byte < 256; ++byte)
    state->n_missing_bytes += vocabulary.byte_token(static_cast<uint8_t>(byte)) < 0;
  state->fingerprint = fingerprint_of(data, *state->rules);
  state->pre = std::move(data.pre);
  state->chat_template = std::move(data.chat_template);
  for (int32_t id = 0; id < vocabulary.size(); ++id)
    if (vocabulary.contains(id)) state->longest_token_bytes = std::max(state->longest_token_bytes, vocabulary.bytes(id).size());
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(state)));
} catch (const std::bad_alloc&) {
  return error(Code::resource_exhausted, "tokenizer: out of memory while building the vocabulary");
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const State& state = *state_;
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 8);
  State::Scratch scratch;
  if (options.add_special && state.add_bos) ids.push_back(*state.bos);
  size_t at = 0;
  while (options.parse_special && !state.specials.empty() && at < text.size()) {
    const MultiMatch::Found found = state.specials.find(text, at);
    if (found.pattern < 0) break;
    state.encode_plain(text.substr(at, found.begin - at), ids, scratch, options.stop);
    ids.push_back(state.vocabulary.special_ids()[found.pattern]);
    at = found.begin + state.specials.pattern_length(found.pattern);
  }
  state.encode_plain(text.substr(at), ids, scratch, options.stop);
  if (options.add_special && state.add_eos) ids.push_back(*state.eos);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool with_special) const {
  std::string out;
  for (const int32_t id : ids)
    if (with_special || !is_special(id)) out += token_bytes(id);
  return out;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  return state_->vocabulary.contains(id) ? state_->vocabulary.bytes(id) : std::string_view();
}

bool Tokenizer::is_special(int32_t id) const {
  if (!state_->vocabulary.contains(id)) return false;
  const TokenType type = state_->vocabulary.type(id);
  return type == TokenType::control || type == TokenType::unknown;
}

bool Tokenizer::is_end(int32_t id) const {
  return std::binary_search(state_->end_ids.begin(), state_->end_ids.end(), id);
}

std::optional<int32_t> Tokenizer::find(std::string_view token_text) const {
  const Vocabulary& vocabulary = state_->vocabulary;
  if (const int32_t id = vocabulary.special(token_text); id >= 0) return id;
  const int32_t id = vocabulary.spelled(token_text);
  return id >= 0 ? std::optional(id) : std::nullopt;
}

std::span<const int32_t> Tokenizer::end_ids() const { return state_->end_ids; }
size_t Tokenizer::least_tokens(std::string_view text) const {
  // Bytes without a token may be dropped, and NFC may shorten the text.
  if (state_->n_missing_bytes > 0 || state_->nfc) return 0;
  return text.size() / state_->longest_token_bytes;
}

int32_t Tokenizer::vocab_size() const { return state_->vocabulary.size(); }
std::optional<int32_t> Tokenizer::bos() const { return state_->bos; }
std::optional<int32_t> Tokenizer::eos() const { return state_->eos; }
std::optional<int32_t> Tokenizer::eot() const { return state_->eot; }
std::optional<int32_t> Tokenizer::pad() const { return state_->pad; }
bool Tokenizer::add_bos() const { return state_->add_bos; }
bool Tokenizer::add_eos() const { return state_->add_eos; }
const std::string& Tokenizer::pre() const { return state_->pre; }
const std::string& Tokenizer::chat_template() const { return state_->chat_template; }
int32_t Tokenizer::n_missing_bytes() const { return state_->n_missing_bytes; }
uint64_t Tokenizer::fingerprint() const { return state_->fingerprint; }

}  // namespace turbo::text
