// Optional scan of the weights themselves (`--check-weights`): values that a container check cannot see.
#pragma once

#include "base/status.h"
#include "model/files/model_file.h"

namespace turbo::model {

/// Fails at the first weight or block scale that is not a finite number, naming the tensor and the element. Looks at
/// f32, f16, bf16 and f64 tensors and at every block type with one binary16 scale; other types pass. Reads each page
/// once and drops it again.
Status check_weights(const ModelFile& file);
Status check_weights(const ModelFile& file, const Tensor& tensor);

}  // namespace turbo::model
