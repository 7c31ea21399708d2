#include "kv_pool.h"

#include <algorithm>
#include <cstring>

namespace turbo::arch_cpu {
namespace {

constexpr uint32_t kMaxLayers = 4096, kMaxHeads = 4096, kMaxHeadDim = 4096, kMaxBlocks = 1u << 24;

[[noreturn]] void refuse(turbo_status code, const std::string& why) { throw Failure(code, "KV pool: " + why); }

void check_block(int32_t id, uint32_t n, const char* what) {
  if (id < 0 || static_cast<uint32_t>(id) >= n)
    refuse(TURBO_INVALID_ARGUMENT, std::string(what) + " " + std::to_string(id) + " is not one of " + std::to_string(n));
}

void check_layout(const turbo_kv_layout& layout, const KvSide& side) {
  const uint64_t most = uint64_t{1} << 40;
  if (layout.packed_block_bytes == 0 || layout.packed_block_bytes > most || layout.open_block_bytes > most || layout.alignment == 0 ||
      (layout.alignment & (layout.alignment - 1)) || layout.alignment > kHugePage || layout.query_floats < side.head_dim ||
      layout.query_floats > 65536)
    refuse(TURBO_INTERNAL, "its codec announces an impossible layout");
  if (!side.one_form && (layout.open_block_bytes == 0 || !side.codec->pack)) refuse(TURBO_INTERNAL, "its codec has no open form and no pack");
}

void describe_side(turbo_kv_pool& pool, uint32_t which, const CodecSource& codecs) {
  KvSide& side = pool.side[which];
  side.head_dim = which == TURBO_KV_SIDE_K ? pool.desc.head_dim_k : pool.desc.head_dim_v;
  turbo_error error{};
  error.struct_size = sizeof error;
  if (!codecs.find) refuse(TURBO_UNSUPPORTED, "the host offers no KV codecs");
  turbo_status status = codecs.find(codecs.ctx, which, &side.codec, &side.self, &error);
  if (status != TURBO_OK || !side.codec)
    throw Failure(status != TURBO_OK ? status : TURBO_UNSUPPORTED, error.message[0] ? error.message : "KV pool: no codec", error.hint);
  for (uint32_t layer = 0; layer < pool.desc.n_layers; ++layer) {
    const turbo_kv_shape shape{sizeof(turbo_kv_shape), which, layer, pool.desc.n_layers, pool.desc.n_kv_heads, side.head_dim};
    turbo_kv_layout layout{};
    layout.struct_size = sizeof layout;
    status = side.codec->layout(side.self, &shape, &layout, &error);
    if (status != TURBO_OK) throw Failure(status, error.message, error.hint);
    const bool one_form = layout.flags & TURBO_KV_OPEN_IS_PACKED;
    if (layer == 0) {
      side.layout = layout;
      side.one_form = one_form;
    }
    check_layout(layout, side);
    if (one_form != side.one_form || layout.query_floats != side.layout.query_floats || layout.sinks != side.layout.sinks)
      refuse(TURBO_UNSUPPORTED, "its codec changes form, query size or sinks between layers");
    side.shapes.push_back(shape);
  }
  side.query_stride = static_cast<uint32_t>(align_up(side.layout.query_floats, 16));
}

// Offsets of [layer][K, V] parts in one block of a form.
uint64_t place_parts(turbo_kv_pool& pool, bool open) {
  uint64_t at = 0;
  for (uint32_t layer = 0; layer < pool.desc.n_layers; ++layer)
    for (KvSide& side : pool.side) {
      turbo_kv_layout layout{};
      layout.struct_size = sizeof layout;
      side.codec->layout(side.self, &side.shapes[layer], &layout, nullptr);
      const uint64_t bytes = open ? (side.one_form ? 0 : layout.open_block_bytes) : layout.packed_block_bytes;
      at = align_up(at, std::max<uint64_t>(64, layout.alignment));
      (open ? side.open_offset : side.packed_offset).push_back(at);
      at = checked_add(at, bytes, "KV pool");
    }
  return align_up(at, std::max<uint64_t>({64, pool.side[0].layout.alignment, pool.side[1].layout.alignment}));
}

}  // namespace

turbo_kv_pool describe_pool(const turbo_kv_pool_desc& desc, const CodecSource& codecs) {
  if (desc.n_layers == 0 || desc.n_layers > kMaxLayers || desc.n_kv_heads == 0 || desc.n_kv_heads > kMaxHeads || desc.head_dim_k == 0 ||
      desc.head_dim_k > kMaxHeadDim || desc.head_dim_v == 0 || desc.head_dim_v > kMaxHeadDim || desc.n_blocks > kMaxBlocks ||
      desc.n_open_blocks > kMaxBlocks)
    refuse(TURBO_INVALID_ARGUMENT, std::to_string(desc.n_layers) + " layers, " + std::to_string(desc.n_kv_heads) + " KV heads of " +
                                       std::to_string(desc.head_dim_k) + " and " + std::to_string(desc.head_dim_v) + ", " +
                                       std::to_string(desc.n_blocks) + " blocks are out of range");
  turbo_kv_pool pool;
  pool.desc = desc;
  describe_side(pool, TURBO_KV_SIDE_K, codecs);
  describe_side(pool, TURBO_KV_SIDE_V, codecs);
  pool.block_bytes = place_parts(pool, false);
  pool.open_block_bytes = place_parts(pool, true);
  if (pool.one_form()) pool.open_block_bytes = 0;
  return pool;
}

void allocate_pool(turbo_kv_pool& pool, const turbo_host_alloc* alloc) {
  if (pool.desc.n_blocks == 0) refuse(TURBO_INVALID_ARGUMENT, "no blocks");
  const uint64_t alignment = std::max<uint64_t>({4096, pool.side[0].layout.alignment, pool.side[1].layout.alignment});
  // Large pages only where a block fills them: the pool is touched block by block, and RSS should follow what is used.
  const bool huge = pool.block_bytes >= kHugePage;
  pool.packed = Memory(alloc, checked_mul(pool.block_bytes, pool.desc.n_blocks, "KV pool"), alignment, "kv", huge);
  pool.open = Memory(alloc, checked_mul(pool.open_block_bytes, pool.n_open_blocks(), "KV pool"), alignment, "kv", false);
}

void pool_pack(turbo_kv_pool& pool, int32_t open_id, int32_t block_id) {
  if (pool.one_form()) refuse(TURBO_INVALID_ARGUMENT, "its blocks have one form, nothing to pack");
  check_block(open_id, pool.n_open_blocks(), "open block");
  check_block(block_id, pool.n_blocks(), "block");
  for (uint32_t which : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V}) {
    const KvSide& side = pool.side[which];
    if (side.one_form) continue;
    for (uint32_t layer = 0; layer < pool.desc.n_layers; ++layer) {
      const turbo_status status = side.codec->pack(side.self, &side.shapes[layer], pool.open_block(which, layer, open_id),
                                                   pool.packed_block(which, layer, block_id));
      if (status != TURBO_OK) refuse(status, "packing block " + std::to_string(block_id) + " failed in layer " + std::to_string(layer));
    }
  }
}

uint8_t* pool_raw(turbo_kv_pool& pool, int32_t id, uint32_t form, uint64_t bytes) {
  const bool open = form == TURBO_KV_FORM_OPEN && !pool.one_form();
  if (form > TURBO_KV_FORM_PACKED) refuse(TURBO_INVALID_ARGUMENT, "form " + std::to_string(form) + " is neither open nor packed");
  check_block(id, open ? pool.n_open_blocks() : pool.n_blocks(), open ? "open block" : "block");
  const uint64_t want = open ? pool.open_block_bytes : pool.block_bytes;
  if (bytes != want) refuse(TURBO_INVALID_ARGUMENT, "a block has " + std::to_string(want) + " bytes, not " + std::to_string(bytes));
  return open ? pool.open.data() + static_cast<uint64_t>(id) * want : pool.packed.data() + static_cast<uint64_t>(id) * want;
}

void pool_copy(turbo_kv_pool& pool, int32_t src, int32_t dst, uint32_t form) {
  const uint64_t bytes = form == TURBO_KV_FORM_OPEN && !pool.one_form() ? pool.open_block_bytes : pool.block_bytes;
  const uint8_t* from = pool_raw(pool, src, form, bytes);
  uint8_t* to = pool_raw(pool, dst, form, bytes);
  if (from != to) std::memcpy(to, from, bytes);
}

void pool_move_row(turbo_kv_pool& pool, int32_t src_id, uint32_t src_row, int32_t dst_id, uint32_t dst_row) {
  if (src_row >= TURBO_KV_BLOCK || dst_row >= TURBO_KV_BLOCK) refuse(TURBO_INVALID_ARGUMENT, "row past the end of a block");
  // With one one-form side and one two-form side an id would name two unrelated blocks.
  if (pool.side[0].one_form != pool.side[1].one_form) refuse(TURBO_UNSUPPORTED, "moving rows needs codecs of the same kind of forms on both sides");
  const uint32_t n = pool.one_form() ? pool.n_blocks() : pool.n_open_blocks();
  check_block(src_id, n, "block");
  check_block(dst_id, n, "block");
  for (uint32_t which : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V}) {
    const KvSide& side = pool.side[which];
    for (uint32_t layer = 0; layer < pool.desc.n_layers; ++layer)
      side.codec->move_row(side.self, &side.shapes[layer], pool.append_block(which, layer, src_id, src_id), src_row,
                           pool.append_block(which, layer, dst_id, dst_id), dst_row);
  }
}

}  // namespace turbo::arch_cpu
