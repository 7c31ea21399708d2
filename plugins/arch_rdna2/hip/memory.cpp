#include "memory.h"

#include <algorithm>
#include <cstring>

namespace turbo::arch_rdna2 {

uint64_t checked_mul(uint64_t a, uint64_t b, const char* what) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) throw Failure(TURBO_RESOURCE_EXHAUSTED, std::string(what) + ": more bytes than 64 bits count");
  return product;
}
uint64_t checked_add(uint64_t a, uint64_t b, const char* what) {
  uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) throw Failure(TURBO_RESOURCE_EXHAUSTED, std::string(what) + ": more bytes than 64 bits count");
  return sum;
}

uint8_t* Staging::pinned(uint64_t bytes) {
  const uint64_t want = std::min(kBytes, align_up(std::max<uint64_t>(bytes, 1), 4096));
  if (pinned_.bytes() < want) pinned_ = hip::DeviceMemory(device_, TURBO_MEMORY_PINNED, want, "staging");
  return pinned_.get<uint8_t>();
}

void Staging::copy(void* dst, const void* src, uint64_t bytes, uint32_t direction) {
  const turbo_device& table = *device_.table();
  checked("copy", [&](turbo_error* error) { return table.copy(table.ctx, table.stream, dst, src, bytes, direction, error); });
}

void Staging::sync() {
  const turbo_device& table = *device_.table();
  checked("", [&](turbo_error* error) { return table.sync(table.ctx, table.stream, error); });
}

void Staging::to_device(void* dst, const void* src, uint64_t bytes) {
  uint8_t* const buffer = pinned(bytes);
  for (uint64_t at = 0; at < bytes; at += kBytes) {
    const uint64_t piece = std::min(kBytes, bytes - at);
    std::memcpy(buffer, static_cast<const uint8_t*>(src) + at, piece);
    copy(static_cast<uint8_t*>(dst) + at, buffer, piece, TURBO_COPY_TO_DEVICE);
    sync();
  }
}

void Staging::to_host(void* dst, const void* src, uint64_t bytes) { rows_to_host(dst, src, 1, bytes, bytes); }

void Staging::rows_to_host(void* dst, const void* src, uint64_t rows, uint64_t row_bytes, uint64_t src_stride) {
  uint8_t* to = static_cast<uint8_t*>(dst);
  const uint8_t* from = static_cast<const uint8_t*>(src);
  // Rows that lie close together travel with what is between them; a row longer than the buffer in pieces.
  if (rows > 1 && src_stride <= kBytes) {
    const uint64_t at_once = kBytes / src_stride;
    uint8_t* const buffer = pinned(std::min(rows, at_once) * src_stride);
    for (uint64_t row = 0; row < rows; row += at_once) {
      const uint64_t n = std::min(at_once, rows - row);
      copy(buffer, from + row * src_stride, (n - 1) * src_stride + row_bytes, TURBO_COPY_TO_HOST);
      sync();
      for (uint64_t i = 0; i < n; ++i) std::memcpy(to + (row + i) * row_bytes, buffer + i * src_stride, row_bytes);
    }
    return;
  }
  uint8_t* const buffer = pinned(row_bytes);
  for (uint64_t row = 0; row < rows; ++row)
    for (uint64_t at = 0; at < row_bytes; at += kBytes) {
      const uint64_t piece = std::min(kBytes, row_bytes - at);
      copy(buffer, from + row * src_stride + at, piece, TURBO_COPY_TO_HOST);
      sync();
      std::memcpy(to + row * row_bytes + at, buffer, piece);
    }
}

void Scratch::reserve(uint64_t bytes) {
  if (bytes <= memory_.bytes()) return;
  const turbo_device& table = *device_.table();
  checked("", [&](turbo_error* error) { return table.sync(table.ctx, table.stream, error); });
  ++generation_;
  memory_ = {};  // first, so that both need not fit at once
  memory_ = hip::DeviceMemory(device_, TURBO_MEMORY_DEVICE, align_up(bytes, uint64_t{1} << 16), "workspace");
}

}  // namespace turbo::arch_rdna2
