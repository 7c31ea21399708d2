// The steps of read_config, one per file. Internal to core/model.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "model/config.h"

namespace turbo::model {

/// Fill a config from GGUF metadata; ranges are not checked yet.
Status read_gguf_keys(const ModelFile& file, ModelConfig* config);
/// Fill a config from the text of config.json; ranges are not checked yet.
Status read_hf_keys(const ModelFile& file, ModelConfig* config);
/// Ranges and relations of all hyper-parameters. `where` heads the messages.
Status check_hyper_parameters(const ModelConfig& config, const std::string& where);
/// Presence, shape and kind of type of every tensor; sets the flags and sums that follow from the tensor table.
Status bind_tensors(const ModelFile& file, ModelConfig* config);

/// not_found for a tensor, with the file's tensor of the nearest name; tensors of `expected` have a place of their own
/// and are not suggested. `detail` goes on after "is missing".
Status missing_tensor(const ModelFile& file, const std::string& name, std::span<const ExpectedTensor> expected,
                      const std::string& detail, const std::string& hint);

/// unsupported, with the list of what is supported and the nearest name.
Status unknown_architecture(const std::string& where, const std::string& found);

}  // namespace turbo::model
