#include "weights.h"

#include <turbo/kernel/half.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

namespace turbo::arch_rdna2 {
namespace {

constexpr uint64_t kMaxDimension = uint64_t{1} << 31;
constexpr uint64_t kThreadBytes = uint64_t{4} << 20;  // of a source worth another thread

[[noreturn]] void fail(turbo_status code, const turbo_weight_source& source, const std::string& why, const std::string& hint = {}) {
  throw Failure(code, std::string("weight '") + (source.name ? source.name : "") + "': " + why, hint);
}

uint32_t float_bytes(uint32_t type) { return type == TURBO_TYPE_F32 ? 4 : type == TURBO_TYPE_F16 || type == TURBO_TYPE_BF16 ? 2 : 0; }

std::vector<float> decode_vector(const turbo_weight_source& source) {
  const uint64_t width = float_bytes(source.type);
  if (width == 0) fail(TURBO_UNSUPPORTED, source, "a vector of type " + std::to_string(source.type), "store vectors as F32, F16 or BF16");
  if (source.bytes / width < source.cols)
    fail(TURBO_CORRUPT_INPUT, source, std::to_string(source.cols) + " elements need " + std::to_string(source.cols * width) +
                                          " bytes but there are " + std::to_string(source.bytes));
  std::vector<float> out(source.cols);
  const uint8_t* data = static_cast<const uint8_t*>(source.data);
  if (width == 4) std::memcpy(out.data(), data, source.cols * 4);
  for (uint64_t i = 0; width == 2 && i < source.cols; ++i) {
    uint16_t half;
    std::memcpy(&half, data + 2 * i, 2);
    out[i] = source.type == TURBO_TYPE_F16 ? turbo_f16_to_f32(half) : turbo_bf16_to_f32(half);
  }
  return out;
}

// Host memory of the packed form, aligned as the format asks.
struct HostCopy {
  HostCopy(uint64_t bytes, uint64_t alignment) : storage(bytes + alignment) {
    const auto address = reinterpret_cast<uintptr_t>(storage.data());
    data = storage.data() + (align_up(address, alignment) - address);
  }
  std::vector<uint8_t> storage;
  uint8_t* data;
};

// Tile-aligned ranges of rows handed out to a few threads; the first error wins.
void repack(const Format& format, const turbo_weight_source& source, uint32_t tile, uint8_t* packed, uint32_t threads) {
  const uint32_t n = static_cast<uint32_t>(std::clamp<uint64_t>(source.bytes / kThreadBytes, 1, std::max(1u, threads)));
  const uint64_t range = align_up(std::max<uint64_t>(1, source.rows / (uint64_t{n} * 4)), tile);
  std::atomic<uint64_t> next{0};
  std::atomic<bool> failed{false};
  turbo_error first{};
  const auto body = [&] {
    for (;;) {
      const uint64_t begin = next.fetch_add(range, std::memory_order_relaxed);
      if (begin >= source.rows || failed.load(std::memory_order_relaxed)) return;
      turbo_error error{};
      error.struct_size = sizeof error;
      const turbo_status status = format.host->repack(format.self, source.type, source.rows, source.cols, source.data, source.bytes, packed, begin,
                                                      std::min(begin + range, source.rows), &error);
      if (status == TURBO_OK || failed.exchange(true)) continue;
      first = error;
      first.code = status;
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (uint32_t i = 1; i < n; ++i) helpers.emplace_back(body);
    body();
  }
  if (failed) fail(first.code, source, first.message, first.hint);
}

void load_matrix(turbo_weight& weight, const turbo_weight_source& source, const Components& components, hip::Device& device, Staging& staging,
                 uint32_t threads) {
  weight.format = components.format(source.type);
  uint64_t bytes = 0, alignment = 64;
  uint32_t tile = 1;
  checked("weight '" + weight.name + "'", [&](turbo_error* error) {
    return weight.format.host->packed_size(weight.format.self, source.type, source.rows, source.cols, &bytes, &alignment, &tile, error);
  });
  // Nothing else on the device is aligned to more than 256 bytes.
  if (tile == 0 || tile > 65536 || alignment == 0 || (alignment & (alignment - 1)) || alignment > 256)
    fail(TURBO_INTERNAL, source, "its weight format asks for tile " + std::to_string(tile) + ", alignment " + std::to_string(alignment));
  const uint64_t on_device = bytes ? bytes : source.bytes;
  weight.memory = hip::DeviceMemory(device, TURBO_MEMORY_DEVICE, on_device, "weights");
  weight.matrix = {sizeof(turbo_matrix), source.type, source.rows, source.cols, weight.memory.get(), on_device};
  if (bytes == 0) {  // kernels read the file's own layout
    staging.to_device(weight.memory.get(), source.data, source.bytes);
    return;
  }
  HostCopy copy(bytes, alignment);
  repack(weight.format, source, tile, copy.data, threads);
  staging.to_device(weight.memory.get(), copy.data, bytes);
}

}  // namespace

std::unique_ptr<turbo_weight> load_weight(const turbo_weight_source& source, const Components& components, hip::Device& device, Staging& staging,
                                          uint32_t threads) {
  if (!source.data) fail(TURBO_INVALID_ARGUMENT, source, "no data");
  if (source.rows == 0 || source.cols == 0 || source.rows > kMaxDimension || source.cols > kMaxDimension)
    fail(TURBO_CORRUPT_INPUT, source, "shape " + std::to_string(source.rows) + " x " + std::to_string(source.cols) + " is not within 1 .. 2^31");
  if (source.shard.count > 1) fail(TURBO_UNSUPPORTED, source, "the HIP pack holds whole matrices, not shards");
  auto weight = std::make_unique<turbo_weight>();
  weight->name = source.name ? source.name : "";
  weight->rows = source.rows;
  weight->cols = source.cols;
  if (!weight->is_vector()) {
    load_matrix(*weight, source, components, device, staging, threads);
    return weight;
  }
  const std::vector<float> values = decode_vector(source);
  weight->memory = hip::DeviceMemory(device, TURBO_MEMORY_DEVICE, values.size() * sizeof(float), "weights");
  staging.to_device(weight->memory.get(), values.data(), values.size() * sizeof(float));
  return weight;
}

}  // namespace turbo::arch_rdna2
