// turbo tokenize, turbo detokenize: only the model's vocabulary is read.
#include <charconv>

#include "cli/commands.h"
#include "engine/tokenizer_source.h"

namespace turbo::cli {
namespace {

Result<std::shared_ptr<const text::Tokenizer>> open_tokenizer(const profile::Profile& profile) {
  if (profile.model.path.empty()) return Status(Code::not_found, "no model is named", "give --model FILE");
  TURBO_ASSIGN(const std::unique_ptr<model::ModelFile> file, model::ModelFile::open(profile.model.path));
  TURBO_ASSIGN(text::TokenizerData data, engine::read_tokenizer_data(*file));
  return text::Tokenizer::create(std::move(data));
}

std::string printable(std::string_view bytes) {
  return nlohmann::json(std::string(bytes)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<std::vector<int32_t>> read_ids(const Arguments& arguments) {
  std::string text;
  for (const std::string& word : arguments.positional) text += word + " ";
  if (arguments.positional.empty()) {
    TURBO_ASSIGN(text, read_text("-"));
  }
  if (text.find_first_not_of(" \t\r\n\f\v") == std::string::npos)
    return Status(Code::invalid_argument, "detokenize: no token ids were given", "give them as arguments or on stdin; [] is the empty list");
  std::vector<int32_t> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    while (at != end && (std::isspace(static_cast<unsigned char>(*at)) || *at == ',' || *at == '[' || *at == ']')) ++at;
    if (at == end) return ids;
    int32_t id = 0;
    const auto [next, code] = std::from_chars(at, end, id);
    if (code != std::errc{})
      return error(Code::invalid_argument, "detokenize: expected token ids but found '{}'", std::string(at, std::min<size_t>(20, end - at)));
    ids.push_back(id);
    at = next;
  }
}

}  // namespace

int run_tokenize(const Arguments& arguments) {
  int exit_code = kOk;
  const auto profile = load_profile(arguments, exit_code);
  if (!profile) return exit_code;
  if (arguments.has("--text") && arguments.has("--file"))
    return fail(error(Code::invalid_argument, "{} and {}: give one of them", arguments.shown("--text"), arguments.shown("--file")),
                arguments, kUsage);
  const auto tokenizer = open_tokenizer(*profile);
  if (!tokenizer) return fail(tokenizer.status(), arguments, kModel);
  const Result<std::string> text =
      arguments.has("--text") ? Result<std::string>(arguments.text("--text")) : read_option_file(arguments, "--file");
  if (!text) return fail(text.status(), arguments, kUsage);
  const std::vector<int32_t> ids = (*tokenizer)->encode(*text, {!arguments.has("--no-special"), !arguments.has("--no-bos")});
  if (arguments.style.json) {
    nlohmann::ordered_json pieces = nlohmann::ordered_json::array();
    for (const int32_t id : ids) pieces.push_back(std::string((*tokenizer)->token_bytes(id)));
    print_json({{"ids", ids}, {"pieces", pieces}});
    return kOk;
  }
  for (const int32_t id : ids) fmt::print("{:>7}  {}\n", id, printable((*tokenizer)->token_bytes(id)));
  return kOk;
}

int run_detokenize(const Arguments& arguments) {
  int exit_code = kOk;
  const auto profile = load_profile(arguments, exit_code);
  if (!profile) return exit_code;
  const auto ids = read_ids(arguments);
  if (!ids) return fail(ids.status(), arguments, kUsage);
  const auto tokenizer = open_tokenizer(*profile);
  if (!tokenizer) return fail(tokenizer.status(), arguments, kModel);
  for (const int32_t id : *ids)
    if (id < 0 || id >= (*tokenizer)->vocab_size())
      return fail(error(Code::invalid_argument, "detokenize: token {} is outside the vocabulary of {}", id, (*tokenizer)->vocab_size()), arguments, kUsage);
  const std::string text = (*tokenizer)->decode(*ids);
  if (arguments.style.json) print_json({{"text", text}});
  else std::fwrite(text.data(), 1, text.size(), stdout), std::fputs("\n", stdout);
  return kOk;
}

}  // namespace turbo::cli
