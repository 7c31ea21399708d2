// Reading the tokenizer of a Hugging Face folder. One thread per call, no shared state.
#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "text/bpe/pre_tokenizer.h"
#include "text/bpe/vocabulary.h"
#include "text/tokenizer.h"

namespace turbo::text {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr uintmax_t max_file_bytes = uintmax_t{256} << 20;

Result<std::string> read_text(const fs::path& path) {
  std::error_code failure;
  const bool regular = fs::is_regular_file(path, failure);
  if (failure == std::errc::no_such_file_or_directory || (!failure && !regular && !fs::exists(path, failure)))
    return error(Code::not_found, "{}: no such file", path.string());
  const uintmax_t size = regular ? fs::file_size(path, failure) : 0;
  if (failure || !regular) return error(Code::not_found, "{}: not a readable file", path.string());
  if (size > max_file_bytes)
    return error(Code::corrupt_input, "{}: {} bytes, the limit is {}", path.string(), size, max_file_bytes);
  std::ifstream file(path, std::ios::binary);
  std::string text(size, '\0');
  if (!file || !file.read(text.data(), static_cast<std::streamsize>(size)))
    return error(Code::not_found, "{}: cannot be read", path.string());
  return text;
}

Result<json> read_json(const fs::path& path) {
  TURBO_ASSIGN(const std::string text, read_text(path));
  json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded() || !parsed.is_object())
    return error(Code::corrupt_input, "{}: not a JSON object", path.string());
  return parsed;
}

// An absent file reads as an empty object.
Result<json> read_optional_json(const fs::path& path) {
  Result<json> parsed = read_json(path);
  if (!parsed && parsed.status().code() == Code::not_found) return json::object();
  return parsed;
}

const json& member(const json& object, const char* key) {
  static const json null;
  if (!object.is_object()) return null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

bool is_true(const json& value) { return value.is_boolean() && value.get<bool>(); }
bool is_blank(const json& value) {
  return value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty());
}
std::string type_of(const json& component) {
  const json& type = member(component, "type");
  return type.is_string() ? type.get<std::string>() : std::string("(none)");
}

Status unsupported(const std::string& what) {
  return error(Code::unsupported, "tokenizer.json: {} is not supported", what.substr(0, 300))
      .with_hint(
          "turbo reads byte-level BPE tokenizers with the qwen2, qwen35, llama-3, gpt-2 and smollm pre-tokenizers");
}

Result<int32_t> token_id(const json& value, const char* where) {
  if (value.is_number_integer() && !value.is_number_float()) {
    if (value.is_number_unsigned() && value.get<uint64_t>() < Vocabulary::max_tokens) return value.get<int32_t>();
  }
  return error(Code::corrupt_input, "{}: a token id is not a number from 0 to {}", where, Vocabulary::max_tokens - 1);
}

// The elements of {"type": "Sequence", list: [...]}, or the component itself, or nothing for null.
std::vector<const json*> flatten(const json& component, const char* list) {
  if (component.is_null()) return {};
  if (type_of(component) != "Sequence") return {&component};
  std::vector<const json*> parts;
  if (const json& items = member(component, list); items.is_array())
    for (const json& item : items) parts.push_back(&item);
  return parts;
}

Status read_normalizer(const json& root, TokenizerData& data) {
  for (const json* part : flatten(member(root, "normalizer"), "normalizers")) {
    if (type_of(*part) != "NFC") return unsupported("normalizer " + type_of(*part));
    data.nfc = true;
  }
  return Status::ok();
}

Status read_pre_tokenizer(const json& root, TokenizerData& data) {
  bool byte_level = false, digits = false;
  for (const json* part : flatten(member(root, "pre_tokenizer"), "pretokenizers")) {
    const std::string type = type_of(*part);
    if (type == "Split" && data.pre.empty() && !digits) {
      const json& regex = member(member(*part, "pattern"), "Regex");
      if (!regex.is_string() || member(*part, "behavior") != "Isolated" || is_true(member(*part, "invert")))
        return unsupported("this Split pre-tokenizer");
      data.pre = pre_name_of_regex(regex.get_ref<const std::string&>());
      if (data.pre.empty()) return unsupported("the pre-tokenizer expression " + regex.get<std::string>());
    } else if (type == "Digits" && data.pre.empty() && is_true(member(*part, "individual_digits"))) {
      digits = true;
    } else if (type == "ByteLevel" && !byte_level) {
      byte_level = true;
      if (is_true(member(*part, "add_prefix_space"))) return unsupported("add_prefix_space");
      const json& use_regex = member(*part, "use_regex");
      if (use_regex.is_null() || is_true(use_regex)) {
        if (!data.pre.empty()) return unsupported("ByteLevel with its own expression after a Split");
        data.pre = digits ? "smollm" : "gpt-2";
      }
    } else {
      return unsupported("pre-tokenizer " + type + " in this place");
    }
  }
  if (!byte_level || data.pre.empty()) return unsupported("a pre-tokenizer without ByteLevel");
  if (digits && data.pre != "smollm") return unsupported("Digits before a Split");
  return Status::ok();
}

Status check_model(const json& model) {
  if (type_of(model) != "BPE") return unsupported("model " + type_of(model));
  if (is_true(member(model, "byte_fallback"))) return unsupported("byte_fallback");
  if (const json& dropout = member(model, "dropout"); !dropout.is_null() && dropout != 0.0)
    return unsupported("dropout");
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!is_blank(member(model, affix))) return unsupported(affix);
  if (!member(model, "vocab").is_object() || !member(model, "merges").is_array())
    return error(Code::corrupt_input, "tokenizer.json: the model has no vocab or no merges");
  return Status::ok();
}

struct Entry {
  std::string text;
  TokenType type;
};

Status read_added_tokens(const json& root, std::map<int32_t, Entry>& entries) {
  const json& added = member(root, "added_tokens");
  if (added.is_null()) return Status::ok();
  if (!added.is_array()) return error(Code::corrupt_input, "tokenizer.json: added_tokens is not a list");
  for (const json& token : added) {
    TURBO_ASSIGN(const int32_t id, token_id(member(token, "id"), "tokenizer.json: added_tokens"));
    const json& content = member(token, "content");
    if (!content.is_string()) return error(Code::corrupt_input, "tokenizer.json: added token {} has no content", id);
    for (const char* flag : {"lstrip", "rstrip", "single_word"})
      if (is_true(member(token, flag))) return unsupported(std::string(flag) + " of added token " + std::to_string(id));
    const TokenType type = is_true(member(token, "special")) ? TokenType::control : TokenType::user_defined;
    entries[id] = {content.get<std::string>(), type};
  }
  return Status::ok();
}

Status read_vocabulary(const json& root, TokenizerData& data) {
  const json& model = member(root, "model");
  TURBO_RETURN_IF_ERROR(check_model(model));
  std::map<int32_t, Entry> entries;
  const json& unknown = member(model, "unk_token");
  for (const auto& [text, value] : member(model, "vocab").items()) {
    TURBO_ASSIGN(const int32_t id, token_id(value, "tokenizer.json: vocab"));
    const TokenType type = unknown == text ? TokenType::unknown : TokenType::normal;
    if (!entries.emplace(id, Entry{text, type}).second)
      return error(Code::corrupt_input, "tokenizer.json: two tokens have id {}", id);
  }
  TURBO_RETURN_IF_ERROR(read_added_tokens(root, entries));
  if (entries.empty()) return error(Code::corrupt_input, "tokenizer.json: the vocabulary is empty");
  const size_t n_tokens = static_cast<size_t>(entries.rbegin()->first) + 1;
  // Padded vocabularies have gaps; a single huge id must not decide how much memory is used.
  if (n_tokens > entries.size() * 2 + 65536)
    return error(Code::corrupt_input, "tokenizer.json: {} tokens, but the highest id is {}", entries.size(),
                 n_tokens - 1);
  data.types.assign(n_tokens, static_cast<int32_t>(TokenType::unused));
  data.tokens.resize(n_tokens);
  for (size_t id = 0; id < n_tokens; ++id) {
    const auto found = entries.find(static_cast<int32_t>(id));
    if (found == entries.end()) {
      data.tokens[id] = "[PAD" + std::to_string(id) + "]";
      continue;
    }
    data.tokens[id] = std::move(found->second.text);
    data.types[id] = static_cast<int32_t>(found->second.type);
  }
  for (const json& merge : member(model, "merges")) {
    if (merge.is_string()) {
      data.merges.push_back(merge.get<std::string>());
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      data.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    } else {
      return error(Code::corrupt_input, "tokenizer.json: merge {} is not a pair", data.merges.size());
    }
  }
  data.ignore_merges = is_true(member(model, "ignore_merges"));
  if (data.pre == "glm4" && data.ignore_merges) data.pre = "llama-bpe";
  return Status::ok();
}

// Token text -> id over the whole vocabulary; a linear search, as only a handful of names are looked up.
std::optional<int32_t> id_of_text(const TokenizerData& data, std::string_view text) {
  const auto found = std::find(data.tokens.rbegin(), data.tokens.rend(), text);
  if (found == data.tokens.rend()) return std::nullopt;
  return static_cast<int32_t>(data.tokens.rend() - found - 1);
}

// "bos_token": "<s>" or {"content": "<s>"}.
std::optional<int32_t> named_token(const json& config, const char* key, const TokenizerData& data) {
  const json& value = member(config, key);
  const json& text = value.is_object() ? member(value, "content") : value;
  return text.is_string() ? id_of_text(data, text.get_ref<const std::string&>()) : std::nullopt;
}

// TemplateProcessing says which tokens surround a single text: [{"SpecialToken": {"id": "<s>"}}, {"Sequence": ...}].
void read_post_processor(const json& root, TokenizerData& data) {
  for (const json* part : flatten(member(root, "post_processor"), "processors")) {
    const json& single = member(*part, "single");
    if (type_of(*part) != "TemplateProcessing" || !single.is_array() || single.empty()) continue;
    const auto special = [&](const json& item) -> std::optional<int32_t> {
      const json& id = member(member(item, "SpecialToken"), "id");
      return id.is_string() ? id_of_text(data, id.get_ref<const std::string&>()) : std::nullopt;
    };
    if (const auto first = special(single.front())) {
      data.bos = first;
      data.add_bos = true;
    }
    if (const auto last = special(single.back()); last && single.size() > 1) {
      data.eos = last;
      data.add_eos = true;
    }
  }
}

void read_chat_template(const json& config, TokenizerData& data) {
  const json& value = member(config, "chat_template");
  if (value.is_string()) data.chat_template = value.get<std::string>();
  if (!value.is_array()) return;
  for (const json& named : value) {  // several: the one called default counts
    const json& text = member(named, "template");
    if (member(named, "name") == "default" && text.is_string()) data.chat_template = text.get<std::string>();
  }
}

Status read_config(const fs::path& folder, TokenizerData& data) {
  TURBO_ASSIGN(const json config, read_optional_json(folder / "tokenizer_config.json"));
  if (const auto id = named_token(config, "bos_token", data)) data.bos = id;
  if (const auto id = named_token(config, "eos_token", data)) data.eos = id;
  if (const auto id = named_token(config, "pad_token", data)) data.pad = id;
  if (const json& add = member(config, "add_bos_token"); add.is_boolean()) data.add_bos = add.get<bool>() && data.bos;
  if (const json& add = member(config, "add_eos_token"); add.is_boolean()) data.add_eos = add.get<bool>() && data.eos;
  read_chat_template(config, data);
  Result<std::string> jinja = read_text(folder / "chat_template.jinja");
  if (jinja) data.chat_template = std::move(jinja).value();
  if (!jinja && jinja.status().code() != Code::not_found) return jinja.status();
  return Status::ok();
}

Status read_generation_config(const fs::path& folder, TokenizerData& data) {
  TURBO_ASSIGN(const json config, read_optional_json(folder / "generation_config.json"));
  const json& eos = member(config, "eos_token_id");
  if (eos.is_null()) return Status::ok();
  const json list = eos.is_array() ? eos : json::array({eos});
  for (const json& value : list) {
    TURBO_ASSIGN(const int32_t id, token_id(value, "generation_config.json: eos_token_id"));
    data.extra_eog.push_back(id);
  }
  if (!data.eos && !data.extra_eog.empty()) data.eos = data.extra_eog.front();
  return Status::ok();
}

}  // namespace

Result<TokenizerData> read_tokenizer_json(const fs::path& folder) try {
  TURBO_ASSIGN(const json root, read_json(folder / "tokenizer.json"));
  TokenizerData data;
  TURBO_RETURN_IF_ERROR(read_normalizer(root, data));
  TURBO_RETURN_IF_ERROR(read_pre_tokenizer(root, data));
  TURBO_RETURN_IF_ERROR(read_vocabulary(root, data));
  read_post_processor(root, data);
  TURBO_RETURN_IF_ERROR(read_config(folder, data));
  TURBO_RETURN_IF_ERROR(read_generation_config(folder, data));
  return data;
} catch (const std::bad_alloc&) {
  return error(Code::resource_exhausted, "tokenizer.json: out of memory");
} catch (const std::exception& failure) {
  return error(Code::corrupt_input, "tokenizer.json: {}", failure.what());
}

}  // namespace turbo::text
