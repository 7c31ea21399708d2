#include "engine/draft_file.h"

#include <algorithm>

#include "engine/tokenizer_source.h"
#include "text/vocabulary_match.h"

namespace turbo::engine {
namespace {

constexpr const char* kHint = "drafter.model must be a model of the target's own family, with the same tokenizer";

}  // namespace

uint64_t DraftFile::tensor_bytes() const {
  uint64_t bytes = 0;
  for (const model::Tensor& tensor : file->tensors()) bytes += tensor.bytes;
  return bytes;
}

Result<DraftFile> DraftFile::open(const std::filesystem::path& path, const text::Tokenizer* target) {
  DraftFile draft;
  const auto opened = [&]() -> Status {
    TURBO_ASSIGN(draft.file, model::ModelFile::open(path));
    TURBO_ASSIGN(draft.config, model::read_config(*draft.file));
    if (!target) return Status(Code::not_found, "the target has no tokenizer, so the draft model's cannot be compared with it");
    TURBO_ASSIGN(text::TokenizerData data, read_tokenizer_data(*draft.file));
    TURBO_ASSIGN(const std::shared_ptr<const text::Tokenizer> tokenizer, text::Tokenizer::create(std::move(data)));
    TURBO_ASSIGN(const uint32_t shared, text::shared_vocabulary(*target, *tokenizer));
    draft.shared_vocab = std::min(shared, draft.config.vocab_size);
    return Status::ok();
  }();
  if (opened.is_ok()) return draft;
  // Readers of a file name it; what reads a tokenizer knows of no file.
  const std::string name = draft.file ? draft.file->name() : path.string();
  Status told = opened.message().find(name) == std::string::npos ? opened.with_context(name) : opened;
  if (told.hint().empty()) told = told.with_hint(kHint);
  return told.with_context("drafter.model");
}

}  // namespace turbo::engine
