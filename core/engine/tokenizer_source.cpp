#include "engine/tokenizer_source.h"

#include <filesystem>

namespace turbo::engine {
namespace {

Status read_id(const model::Metadata& metadata, const char* key, std::optional<int32_t>& id) {
  TURBO_ASSIGN(const std::optional<uint64_t> value, metadata.optional_unsigned(key));
  if (!value) return Status::ok();
  // Some writers store -1 for "none" as an unsigned number; Tokenizer::create checks the rest.
  if (*value <= INT32_MAX) id = static_cast<int32_t>(*value);
  return Status::ok();
}

Result<text::TokenizerData> from_gguf(const model::Metadata& metadata) {
  text::TokenizerData data;
  if (!metadata.contains("tokenizer.ggml.model"))
    return Status(Code::not_found, metadata.source() + ": the file carries no tokenizer", "give token ids with --prompt-ids");
  TURBO_ASSIGN(data.model, metadata.get_string("tokenizer.ggml.model"));
  TURBO_ASSIGN(const std::optional<std::string> pre, metadata.optional_string("tokenizer.ggml.pre"));
  data.pre = pre.value_or("default");
  TURBO_ASSIGN(data.tokens, metadata.get_strings("tokenizer.ggml.tokens"));
  if (metadata.contains("tokenizer.ggml.token_type")) {
    TURBO_ASSIGN(data.types, metadata.get_i32s("tokenizer.ggml.token_type"));
  }
  if (metadata.contains("tokenizer.ggml.merges")) {
    TURBO_ASSIGN(data.merges, metadata.get_strings("tokenizer.ggml.merges"));
  }
  TURBO_RETURN_IF_ERROR(read_id(metadata, "tokenizer.ggml.bos_token_id", data.bos));
  TURBO_RETURN_IF_ERROR(read_id(metadata, "tokenizer.ggml.eos_token_id", data.eos));
  TURBO_RETURN_IF_ERROR(read_id(metadata, "tokenizer.ggml.eot_token_id", data.eot));
  TURBO_RETURN_IF_ERROR(read_id(metadata, "tokenizer.ggml.padding_token_id", data.pad));
  TURBO_ASSIGN(const std::optional<bool> add_bos, metadata.optional_bool("tokenizer.ggml.add_bos_token"));
  TURBO_ASSIGN(const std::optional<bool> add_eos, metadata.optional_bool("tokenizer.ggml.add_eos_token"));
  data.add_bos = add_bos.value_or(false);
  data.add_eos = add_eos.value_or(false);
  TURBO_ASSIGN(const std::optional<std::string> chat, metadata.optional_string("tokenizer.chat_template"));
  data.chat_template = chat.value_or("");
  return data;
}

}  // namespace

Result<text::TokenizerData> read_tokenizer_data(const model::ModelFile& file) {
  if (file.format() == model::Format::gguf) return from_gguf(file.metadata());
  std::error_code ignored;
  if (!std::filesystem::exists(file.folder() / "tokenizer.json", ignored))
    return Status(Code::not_found, file.name() + ": the folder has no tokenizer.json", "give token ids with --prompt-ids");
  return text::read_tokenizer_json(file.folder());
}

}  // namespace turbo::engine
