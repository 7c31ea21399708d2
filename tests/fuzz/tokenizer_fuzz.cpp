// Any bytes through the bundled tokenizer, under every pre-tokenizer: decode(encode(x)) is x, and streaming the tokens
// gives the same text as decoding them at once. The first input byte picks rules and options, the rest is the text.
// TURBO_TEST_DATA is the folder tests/ of the source tree.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "text/stop_matcher.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

#ifndef TURBO_TEST_DATA
#define TURBO_TEST_DATA "tests"
#endif

namespace {

using turbo::text::Tokenizer;

constexpr std::array<const char*, 6> rules = {"qwen2", "qwen35", "llama-bpe", "glm4", "gpt-2", "smollm"};
constexpr uint8_t nfc_flag = 0x80, plain_flag = 0x40;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "tokenizer_fuzz: %s\n", what);
  std::abort();
}

std::shared_ptr<const Tokenizer> load(const char* pre, bool nfc) {
  auto data = turbo::text::read_tokenizer_json(TURBO_TEST_DATA "/golden/turbo-tokenizer");
  if (!data) fail(data.status().message().c_str());
  data->pre = pre;
  data->nfc = nfc;
  auto tokenizer = Tokenizer::create(std::move(*data));
  if (!tokenizer) fail(tokenizer.status().message().c_str());
  return *tokenizer;
}

const Tokenizer& tokenizer_for(uint8_t choice) {
  static std::array<std::shared_ptr<const Tokenizer>, rules.size() * 2> loaded;
  const bool nfc = (choice & nfc_flag) != 0;
  const size_t index = (choice & 0x3F) % rules.size();
  auto& slot = loaded[index * 2 + nfc];
  if (!slot) slot = load(rules[index], nfc);
  return *slot;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  turbo::text::StreamDecoder decoder(tokenizer, /*skip_special=*/false);
  turbo::text::StopMatcher stops({});
  std::string joined;
  for (const int32_t id : ids) joined += stops.push(decoder.push(id)).text;
  joined += stops.push(decoder.finish()).text;
  return joined + stops.finish();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  const Tokenizer& tokenizer = tokenizer_for(bytes[0]);
  turbo::text::EncodeOptions options;
  options.parse_special = (bytes[0] & plain_flag) == 0;
  const std::vector<int32_t> ids = tokenizer.encode(text, options);
  const std::string decoded = tokenizer.decode(ids);
  if ((bytes[0] & nfc_flag) == 0 && decoded != text) fail("decode(encode(text)) is not the text");
  // Normalised text is in normal form already.
  if ((bytes[0] & nfc_flag) != 0 && tokenizer.decode(tokenizer.encode(decoded, options)) != decoded)
    fail("normalising twice is not normalising once");
  if (streamed(tokenizer, ids) != turbo::text::sanitize_utf8(decoded)) fail("the stream is not the whole");
  return 0;
}
