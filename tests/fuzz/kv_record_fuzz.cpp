// libFuzzer target: any bytes as a record of keys, as they are and behind a digest that fits them. Whatever is read must
// be safe to use and be written as it was read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "engine/kv_record.h"

namespace {

void try_read(const std::string& bytes) {
  using namespace turbo::engine;
  const auto record = read_record(bytes);
  if (!record) {
    if (record.status().message().empty()) std::abort();
    return;
  }
  if (to_halves(to_floats(record->centers, record->shape)) != record->centers) std::abort();
  if (write_record(*record) != bytes) std::abort();
  KvRecord other = *record;
  other.merge(*record);
  other.set_divergence({}, record->shape.n_layers - 1, 0.5);
  if (!read_record(write_record(other))) {
    if (write_record(other).size() != 0) std::abort();  // too large with one codec more
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  try_read(bytes);
  const auto digest = turbo::Sha256().add(std::as_bytes(std::span(bytes))).finish();
  bytes.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  try_read(bytes);
  return 0;
}
