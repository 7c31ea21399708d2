#include "kv_pool.h"

#include <algorithm>

using turbo::arch_rdna2::KvPart;

turbo_device_kv turbo_kv_pool::kv(uint32_t side, uint32_t layer) const {
  const KvPart& p = part(side, layer);
  turbo_device_kv kv{};
  kv.base = packed.get<uint8_t>() ? packed.get<uint8_t>() + p.packed_offset : nullptr;
  // A part of one form reads and writes its open rows in the only block.
  const bool own = !p.one_form && open.get<uint8_t>();
  kv.open_base = own ? open.get<uint8_t>() + p.open_offset : p.one_form ? kv.base : nullptr;
  kv.stride = block_bytes;
  kv.open_stride = p.one_form ? block_bytes : open_block_bytes;
  kv.n_kv_heads = desc.n_kv_heads;
  kv.head_dim = p.shape.head_dim;
  kv.sinks = p.one_form ? 0 : p.layout.sinks;
  kv.layer = layer;
  kv.side = side;
  return kv;
}

uint8_t* turbo_kv_pool::append_block(uint32_t side, uint32_t layer, const turbo_kv_place& place) const {
  const turbo_device_kv kv = this->kv(side, layer);
  return part(side, layer).one_form ? kv.base + static_cast<uint64_t>(place.block_id) * kv.stride
                                    : kv.open_base + static_cast<uint64_t>(place.open_id) * kv.open_stride;
}

namespace turbo::arch_rdna2 {
namespace {

constexpr uint32_t kMaxLayers = 4096, kMaxHeads = 4096, kMaxHeadDim = 4096, kMaxBlocks = 1u << 24;
constexpr uint64_t kAlignment = 256;

[[noreturn]] void refuse(turbo_status code, const std::string& why) { throw Failure(code, "KV pool: " + why); }

void check_block(int32_t id, uint32_t n, const char* what) {
  if (id < 0 || static_cast<uint32_t>(id) >= n)
    refuse(TURBO_INVALID_ARGUMENT, std::string(what) + " " + std::to_string(id) + " is not one of " + std::to_string(n));
}

void check_layout(const KvPart& part) {
  const turbo_kv_layout& layout = part.layout;
  const uint64_t most = uint64_t{1} << 40;
  if (layout.packed_block_bytes == 0 || layout.packed_block_bytes > most || layout.open_block_bytes > most || layout.alignment == 0 ||
      (layout.alignment & (layout.alignment - 1)) || layout.alignment > kAlignment)
    refuse(TURBO_INTERNAL, "its codec announces an impossible layout");
  if (!part.one_form && (layout.open_block_bytes == 0 || !part.codec.device->pack)) refuse(TURBO_INTERNAL, "its codec has no open form and no pack");
}

KvPart describe_part(const turbo_kv_pool_desc& desc, uint32_t side, uint32_t layer, const Components& components) {
  KvPart part;
  part.codec = components.codec(side, layer);
  part.shape = {sizeof(turbo_kv_shape), side, layer, desc.n_layers, desc.n_kv_heads, side == TURBO_KV_SIDE_K ? desc.head_dim_k : desc.head_dim_v};
  part.layout.struct_size = sizeof part.layout;
  checked("", [&](turbo_error* error) { return part.codec.host->layout(part.codec.self, &part.shape, &part.layout, error); });
  part.one_form = part.layout.flags & TURBO_KV_OPEN_IS_PACKED;
  check_layout(part);
  return part;
}

// The codec of K reads values of its own kind too, which another instance lays out: it is asked for their layout as well,
// so that it knows the shape before attend.
void introduce(const KvPart& k, const KvPart& v) {
  if (k.codec.fingerprint != v.codec.fingerprint || k.codec.self == v.codec.self) return;
  turbo_kv_layout same{};
  same.struct_size = sizeof same;
  checked("", [&](turbo_error* error) { return k.codec.host->layout(k.codec.self, &v.shape, &same, error); });
}

// Places the [layer][K, V] parts in one block of a form; returns the bytes of the block.
uint64_t place_parts(turbo_kv_pool& pool, bool open) {
  uint64_t at = 0, alignment = 64;
  for (uint32_t layer = 0; layer < pool.desc.n_layers; ++layer)
    for (std::vector<KvPart>& side : pool.parts) {
      KvPart& part = side[layer];
      const uint64_t bytes = open ? (part.one_form ? 0 : part.layout.open_block_bytes) : part.layout.packed_block_bytes;
      alignment = std::max<uint64_t>(alignment, part.layout.alignment);
      at = align_up(at, std::max<uint64_t>(64, part.layout.alignment));
      (open ? part.open_offset : part.packed_offset) = at;
      at = checked_add(at, bytes, "KV pool");
    }
  return align_up(at, alignment);
}

}  // namespace

turbo_kv_pool describe_pool(const turbo_kv_pool_desc& desc, const Components& components) {
  if (desc.n_layers == 0 || desc.n_layers > kMaxLayers || desc.n_kv_heads == 0 || desc.n_kv_heads > kMaxHeads || desc.head_dim_k == 0 ||
      desc.head_dim_k > kMaxHeadDim || desc.head_dim_v == 0 || desc.head_dim_v > kMaxHeadDim || desc.n_blocks > kMaxBlocks ||
      desc.n_open_blocks > kMaxBlocks)
    refuse(TURBO_INVALID_ARGUMENT, std::to_string(desc.n_layers) + " layers, " + std::to_string(desc.n_kv_heads) + " KV heads of " +
                                       std::to_string(desc.head_dim_k) + " and " + std::to_string(desc.head_dim_v) + ", " +
                                       std::to_string(desc.n_blocks) + " blocks are out of range");
  turbo_kv_pool pool;
  pool.desc = desc;
  for (const uint32_t side : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V})
    for (uint32_t layer = 0; layer < desc.n_layers; ++layer) {
      const KvPart& part = pool.parts[side].emplace_back(describe_part(desc, side, layer, components));
      (part.one_form ? pool.any_one_form : pool.any_two_form) = true;
      if (!part.one_form) pool.sinks = std::max(pool.sinks, part.layout.sinks);
    }
  for (uint32_t layer = 0; layer < desc.n_layers; ++layer) introduce(pool.parts[TURBO_KV_SIDE_K][layer], pool.parts[TURBO_KV_SIDE_V][layer]);
  pool.block_bytes = place_parts(pool, false);
  pool.open_block_bytes = pool.one_form() ? 0 : place_parts(pool, true);
  return pool;
}

void allocate_pool(turbo_kv_pool& pool, hip::Device& device) {
  if (pool.desc.n_blocks == 0) refuse(TURBO_INVALID_ARGUMENT, "no blocks");
  pool.packed = hip::DeviceMemory(device, TURBO_MEMORY_DEVICE, checked_mul(pool.block_bytes, pool.desc.n_blocks, "KV pool"), "kv");
  const uint64_t open = checked_mul(pool.open_block_bytes, pool.n_open_blocks(), "KV pool");
  if (open) pool.open = hip::DeviceMemory(device, TURBO_MEMORY_DEVICE, open, "kv");
}

void pool_pack(turbo_kv_pool& pool, int32_t open_id, int32_t block_id, turbo_stream* stream) {
  if (pool.one_form()) refuse(TURBO_INVALID_ARGUMENT, "its blocks have one form, nothing to pack");
  check_block(open_id, pool.n_open_blocks(), "open block");
  check_block(block_id, pool.n_blocks(), "block");
  for (uint32_t layer = 0; layer < pool.desc.n_layers; ++layer)
    for (const uint32_t side : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V}) {
      const KvPart& part = pool.part(side, layer);
      if (part.one_form) continue;
      const turbo_device_kv kv = pool.kv(side, layer);
      checked("KV pool: packing block " + std::to_string(block_id) + " in layer " + std::to_string(layer),
              [&](turbo_error* error) { return part.codec.device->pack(part.codec.self, stream, &kv, open_id, block_id, error); });
    }
}

uint8_t* pool_raw(turbo_kv_pool& pool, int32_t id, uint32_t form, uint64_t bytes) {
  if (form > TURBO_KV_FORM_PACKED) refuse(TURBO_INVALID_ARGUMENT, "form " + std::to_string(form) + " is neither open nor packed");
  const bool open = form == TURBO_KV_FORM_OPEN && !pool.one_form();
  check_block(id, open ? pool.n_open_blocks() : pool.n_blocks(), open ? "open block" : "block");
  const uint64_t want = open ? pool.open_block_bytes : pool.block_bytes;
  if (bytes != want) refuse(TURBO_INVALID_ARGUMENT, "a block has " + std::to_string(want) + " bytes, not " + std::to_string(bytes));
  return (open ? pool.open : pool.packed).get<uint8_t>() + static_cast<uint64_t>(id) * want;
}

void pool_copy(turbo_kv_pool& pool, int32_t src, int32_t dst, uint32_t form, hip::Device& device) {
  const uint64_t bytes = form == TURBO_KV_FORM_OPEN && !pool.one_form() ? pool.open_block_bytes : pool.block_bytes;
  const uint8_t* from = pool_raw(pool, src, form, bytes);
  uint8_t* to = pool_raw(pool, dst, form, bytes);
  if (from == to) return;
  const turbo_device& table = *device.table();
  checked("KV pool: copy", [&](turbo_error* error) { return table.copy(table.ctx, table.stream, to, from, bytes, TURBO_COPY_ON_DEVICE, error); });
}

void pool_move_row(turbo_kv_pool& pool, const turbo_kv_place& src, const turbo_kv_place& dst, turbo_stream* stream) {
  if (src.row >= TURBO_KV_BLOCK || dst.row >= TURBO_KV_BLOCK) refuse(TURBO_INVALID_ARGUMENT, "row past the end of a block");
  for (const turbo_kv_place* place : {&src, &dst}) {
    if (pool.any_one_form) check_block(place->block_id, pool.n_blocks(), "block");
    if (pool.any_two_form) check_block(place->open_id, pool.n_open_blocks(), "open block");
  }
  for (uint32_t layer = 0; layer < pool.desc.n_layers; ++layer)
    for (const uint32_t side : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V}) {
      const KvPart& part = pool.part(side, layer);
      const turbo_device_kv kv = pool.kv(side, layer);
      checked("KV pool: moving a row in layer " + std::to_string(layer), [&](turbo_error* error) {
        return part.codec.device->move_row(part.codec.self, stream, &kv, pool.append_block(side, layer, src), src.row,
                                           pool.append_block(side, layer, dst), dst.row, error);
      });
    }
}

}  // namespace turbo::arch_rdna2
