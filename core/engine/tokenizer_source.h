// A model file's vocabulary as the tokenizer wants it. Pure.
#pragma once

#include "base/status.h"
#include "model/files/model_file.h"
#include "text/tokenizer.h"

namespace turbo::engine {

/// tokenizer.ggml.* of a GGUF, or tokenizer.json beside safetensors. not_found when the model carries none.
Result<text::TokenizerData> read_tokenizer_data(const model::ModelFile& file);

}  // namespace turbo::engine
