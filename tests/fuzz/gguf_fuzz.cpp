// libFuzzer target: any bytes as a GGUF file. Everything that opens must also be safe to read to its last byte.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "model/config.h"
#include "model/files/summary.h"
#include "model/files/weight_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace turbo::model;
  auto file = ModelFile::open_memory("fuzz.gguf", {reinterpret_cast<const std::byte*>(data), size});
  if (!file) {
    if (file.status().message().empty()) std::abort();
    return 0;
  }
  unsigned sum = 0;
  for (const Tensor& tensor : (*file)->tensors()) {
    if (tensor.bytes == 0 || tensor.bytes % tensor.row_bytes() != 0) std::abort();
    sum += unsigned(tensor.data[0]) + unsigned(tensor.data[tensor.bytes - 1]);
    if ((*file)->find(tensor.name) != &tensor) std::abort();
  }
  (void)check_weights(**file);
  const ModelSummary summary = summarize(**file);
  sum += unsigned(summary.to_json().size() + summary.to_lines().size());
  if (const auto config = read_config(**file)) {
    if (config->rope.inverse_frequencies().size() != config->rope.dims / 2) std::abort();
    sum += config->rope.magnitude() > 0;
  }
  volatile unsigned keep = sum;  // the reads must happen
  (void)keep;
  return 0;
}
