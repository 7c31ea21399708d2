// libFuzzer target: any bytes as a safetensors file, and as the JSON of a configuration or index.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "model/files/safetensors_reader.h"
#include "model/files/strict_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace turbo::model;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  unsigned sum = 0;
  if (const auto contents = read_safetensors(bytes, "fuzz.safetensors")) {
    uint64_t expected = 0;
    for (const Tensor& tensor : contents->tensors) {
      sum += unsigned(tensor.data[0]) + unsigned(tensor.data[tensor.bytes - 1]);
      expected += tensor.bytes;
    }
    if (expected > size) std::abort();  // tensors never overlap
  }
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto json = parse_strict_json(size > 8 ? text.substr(8) : text, "fuzz.json")) sum += unsigned(json->size());
  volatile unsigned keep = sum;  // the reads must happen
  (void)keep;
  return 0;
}
