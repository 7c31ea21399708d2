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
  auto opened = [&]() -> Result<DraftFile> {
    DraftFile draft;
    TURBO_ASSIGN(draft.file, model::ModelFile::open(path));
    TURBO_ASSIGN(draft.config, model::read_config(*draft.file));
    if (!target) return Status(Code::not_found, "the target has no tokenizer, so the draft model's cannot be compared with it", kHint);
    TURBO_ASSIGN(text::TokenizerData data, read_tokenizer_data(*draft.file));
    TURBO_ASSIGN(const std::shared_ptr<const text::Tokenizer> tokenizer, text::Tokenizer::create(std::move(data)));
    const Result<uint32_t> shared = text::shared_vocabulary(*target, *tokenizer);
    if (!shared) return shared.status().with_context(draft.file->name()).with_hint(kHint);
    draft.shared_vocab = std::min(*shared, draft.config.vocab_size);
    return draft;
  }();
  if (!opened) return opened.status().with_context("drafter.model");
  return std::move(*opened);
}

}  // namespace turbo::engine
