#include "weights.h"

#include <turbo/kernel/half.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>

namespace turbo::arch_cpu {
namespace {

constexpr uint64_t kMaxDimension = uint64_t{1} << 31;

[[noreturn]] void fail(turbo_status code, const turbo_weight_source& source, const std::string& why, const std::string& hint = {}) {
  throw Failure(code, std::string("weight '") + (source.name ? source.name : "") + "': " + why, hint);
}

uint32_t float_bytes(uint32_t type) { return type == TURBO_TYPE_F32 ? 4 : type == TURBO_TYPE_F16 || type == TURBO_TYPE_BF16 ? 2 : 0; }

std::vector<float> decode_vector(const turbo_weight_source& source) {
  const uint64_t width = float_bytes(source.type);
  if (width == 0) fail(TURBO_UNSUPPORTED, source, "a vector of type " + std::to_string(source.type), "store vectors as F32, F16 or BF16");
  if (source.bytes < source.cols * width)
    fail(TURBO_CORRUPT_INPUT, source, std::to_string(source.cols) + " elements need " + std::to_string(source.cols * width) +
                                          " bytes but there are " + std::to_string(source.bytes));
  std::vector<float> out(source.cols);
  const uint8_t* data = static_cast<const uint8_t*>(source.data);
  if (width == 4) {
    std::memcpy(out.data(), data, source.cols * 4);
    return out;
  }
  for (uint64_t i = 0; i < source.cols; ++i) {
    uint16_t half;
    std::memcpy(&half, data + 2 * i, 2);
    out[i] = source.type == TURBO_TYPE_F16 ? turbo_f16_to_f32(half) : turbo_bf16_to_f32(half);
  }
  return out;
}

// Tile-aligned row ranges handed out over the team; the first error wins.
struct Repack {
  const turbo_weight& weight;
  const turbo_weight_source& source;
  uint64_t range;
  std::atomic<uint64_t> next{0};
  std::atomic<bool> failed{false};
  turbo_error error{};

  static void body(void* context, uint32_t) {
    Repack& self = *static_cast<Repack*>(context);
    for (;;) {
      const uint64_t begin = self.next.fetch_add(self.range, std::memory_order_relaxed);
      if (begin >= self.weight.rows || self.failed.load(std::memory_order_relaxed)) return;
      turbo_error error{};
      error.struct_size = sizeof error;
      const turbo_status status = self.weight.format->repack(
          self.weight.format_self, self.weight.type, self.weight.rows, self.weight.cols, self.source.data, self.source.bytes,
          self.weight.memory.data(), begin, std::min(begin + self.range, self.weight.rows), &error);
      if (status != TURBO_OK && !self.failed.exchange(true)) {
        self.error = error;
        self.error.code = status;
      }
    }
  }
};

void load_matrix(turbo_weight& weight, const turbo_weight_source& source, const FormatSource& formats, const turbo_host_alloc* alloc,
                 ThreadTeam& team) {
  turbo_error error{};
  error.struct_size = sizeof error;
  if (!formats.find) fail(TURBO_UNSUPPORTED, source, "the host offers no weight formats");
  turbo_status status = formats.find(formats.ctx, source.type, &weight.format, &weight.format_self, &error);
  if (status != TURBO_OK || !weight.format)
    fail(status != TURBO_OK ? status : TURBO_UNSUPPORTED, source,
         error.message[0] ? error.message : "no weight format serves type " + std::to_string(source.type), error.hint);
  uint64_t bytes = 0, alignment = 64;
  uint32_t tile = 1;
  status = weight.format->packed_size(weight.format_self, source.type, source.rows, source.cols, &bytes, &alignment, &tile, &error);
  if (status != TURBO_OK) fail(status, source, error.message, error.hint);
  if (tile == 0 || tile > 65536 || alignment == 0 || (alignment & (alignment - 1)) || alignment > kHugePage)
    fail(TURBO_INTERNAL, source, "its weight format asks for tile " + std::to_string(tile) + ", alignment " + std::to_string(alignment));
  weight.tile = tile;
  weight.in_place = bytes == 0;
  const char* id = weight.format->activation_id(weight.format_self, source.type);
  weight.activation_id = id ? id : "";
  weight.activation_bytes = weight.format->activation_bytes(weight.format_self, source.type, source.cols);
  if (weight.activation_bytes == 0 || weight.activation_bytes > source.cols * 16 + 4096)
    fail(TURBO_INTERNAL, source, "its weight format asks for activation rows of " + std::to_string(weight.activation_bytes) + " bytes");
  weight.matrix = {sizeof(turbo_matrix), source.type, source.rows, source.cols, source.data, source.bytes};
  if (weight.in_place) return;
  weight.memory = Memory(alloc, bytes, alignment, "weights", true);
  weight.matrix.packed = weight.memory.data();
  weight.matrix.packed_bytes = bytes;
  const uint64_t share = (source.rows + uint64_t{team.size()} * 4 - 1) / (uint64_t{team.size()} * 4);
  Repack repack{weight, source, align_up(share, tile)};
  team.run(&Repack::body, &repack);
  if (repack.failed) fail(repack.error.code, source, repack.error.message, repack.error.hint);
}

}  // namespace

turbo_weight* load_weight(const turbo_weight_source& source, const FormatSource& formats, const turbo_host_alloc* alloc, ThreadTeam& team) {
  if (!source.data) fail(TURBO_INVALID_ARGUMENT, source, "no data");
  if (source.rows == 0 || source.cols == 0 || source.rows > kMaxDimension || source.cols > kMaxDimension)
    fail(TURBO_CORRUPT_INPUT, source, "shape " + std::to_string(source.rows) + " x " + std::to_string(source.cols) + " is not within 1 .. 2^31");
  if (source.shard.count > 1) fail(TURBO_UNSUPPORTED, source, "the CPU pack holds whole matrices, not shards");
  auto weight = std::make_unique<turbo_weight>();
  weight->name = source.name ? source.name : "";
  weight->rows = source.rows;
  weight->cols = source.cols;
  weight->type = source.type;
  if (weight->is_vector()) weight->vector = decode_vector(source);
  else load_matrix(*weight, source, formats, alloc, team);
  return weight.release();
}

}  // namespace turbo::arch_cpu
