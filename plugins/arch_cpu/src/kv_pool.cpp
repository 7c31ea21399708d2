#include "kv_pool.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace turbo::arch_cpu {
namespace {

constexpr uint32_t kMaxLayers = 4096, kMaxHeads = 4096, kMaxHeadDim = 4096, kMaxBlocks = 1u << 24;

[[noreturn]] void refuse(turbo_status code, const std::string& why) { throw Failure(code, "KV pool: " + why); }

void check_block(int32_t id, uint32_t n, const char* what) {
  if (id < 0 || static_cast<uint32_t>(id) >= n)
    refuse(TURBO_INVALID_ARGUMENT, std::string(what) + " " + std::to_string(id) + " is not one of " + std::to_string(n));
}

void check_layout(const KvPart& part) {
  const turbo_kv_layout& layout = part.layout;
  const uint64_t most = uint64_t{1} << 40;
  if (layout.packed_block_bytes == 0 || layout.packed_block_bytes > most || layout.open_block_bytes > most || layout.alignment == 0 ||
      (layout.alignment & (layout.alignment - 1)) || layout.alignment > kHugePage || layout.query_floats < part.shape.head_dim ||
      layout.query_floats > 65536)
    refuse(TURBO_INTERNAL, "its codec announces an impossible layout");
  if (!part.one_form && (layout.open_block_bytes == 0 || !part.codec->pack)) refuse(TURBO_INTERNAL, "its codec has no open form and no pack");
}

KvPart describe_part(const turbo_kv_pool_desc& desc, uint32_t which, uint32_t layer, const CodecSource& codecs) {
  KvPart part;
  turbo_error error{};
  error.struct_size = sizeof error;
  turbo_status status = codecs.find(codecs.ctx, which, layer, &part.codec, &part.self, &error);
  if (status != TURBO_OK || !part.codec)
    throw Failure(status != TURBO_OK ? status : TURBO_UNSUPPORTED, error.message[0] ? error.message : "KV pool: no codec", error.hint);
  const uint32_t head_dim = which == TURBO_KV_SIDE_K ? desc.head_dim_k : desc.head_dim_v;
  part.shape = {sizeof(turbo_kv_shape), which, layer, desc.n_layers, desc.n_kv_heads, head_dim};
  part.layout.struct_size = sizeof part.layout;
  status = part.codec->layout(part.self, &part.shape, &part.layout, &error);
  if (status != TURBO_OK) throw Failure(status, error.message, error.hint);
  part.one_form = part.layout.flags & TURBO_KV_OPEN_IS_PACKED;
  check_layout(part);
  part.query_stride = static_cast<uint32_t>(align_up(part.layout.query_floats, 16));
  return part;
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

turbo_kv_pool describe_pool(const turbo_kv_pool_desc& desc, const CodecSource& codecs) {
  if (desc.n_layers == 0 || desc.n_layers > kMaxLayers || desc.n_kv_heads == 0 || desc.n_kv_heads > kMaxHeads || desc.head_dim_k == 0 ||
      desc.head_dim_k > kMaxHeadDim || desc.head_dim_v == 0 || desc.head_dim_v > kMaxHeadDim || desc.n_blocks > kMaxBlocks ||
      desc.n_open_blocks > kMaxBlocks)
    refuse(TURBO_INVALID_ARGUMENT, std::to_string(desc.n_layers) + " layers, " + std::to_string(desc.n_kv_heads) + " KV heads of " +
                                       std::to_string(desc.head_dim_k) + " and " + std::to_string(desc.head_dim_v) + ", " +
                                       std::to_string(desc.n_blocks) + " blocks are out of range");
  turbo_kv_pool pool;
  pool.desc = desc;
  if (!codecs.find) refuse(TURBO_UNSUPPORTED, "the host offers no KV codecs");
  for (uint32_t which : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V})
    for (uint32_t layer = 0; layer < desc.n_layers; ++layer) {
      const KvPart& part = pool.parts[which].emplace_back(describe_part(desc, which, layer, codecs));
      (part.one_form ? pool.any_one_form : pool.any_two_form) = true;
      if (!part.one_form) pool.sinks = std::max(pool.sinks, part.layout.sinks);
    }
  pool.block_bytes = place_parts(pool, false);
  pool.open_block_bytes = place_parts(pool, true);
  if (pool.one_form()) pool.open_block_bytes = 0;
  return pool;
}

void allocate_pool(turbo_kv_pool& pool, const turbo_host_alloc* alloc) {
  if (pool.desc.n_blocks == 0) refuse(TURBO_INVALID_ARGUMENT, "no blocks");
  uint64_t alignment = 4096;
  for (const std::vector<KvPart>& side : pool.parts)
    for (const KvPart& part : side) alignment = std::max<uint64_t>(alignment, part.layout.alignment);
  // Large pages only where a block fills them: the pool is touched block by block, and RSS should follow what is used.
  const bool huge = pool.block_bytes >= kHugePage;
  pool.packed = Memory(alloc, checked_mul(pool.block_bytes, pool.desc.n_blocks, "KV pool"), alignment, "kv", huge);
  pool.open = Memory(alloc, checked_mul(pool.open_block_bytes, pool.n_open_blocks(), "KV pool"), alignment, "kv", false);
}

void pool_pack(turbo_kv_pool& pool, int32_t open_id, int32_t block_id, ThreadTeam& team) {
  if (pool.one_form()) refuse(TURBO_INVALID_ARGUMENT, "its blocks have one form, nothing to pack");
  check_block(open_id, pool.n_open_blocks(), "open block");
  check_block(block_id, pool.n_blocks(), "block");
  // A block of a large model is tens of thousands of vectors; parts are independent.
  struct Packing {
    turbo_kv_pool& pool;
    const int32_t open_id, block_id;
    std::atomic<uint32_t> next{0}, failed_layer{UINT32_MAX};
    std::atomic<int32_t> status{TURBO_OK};
    static void body(void* context, uint32_t) {
      Packing& self = *static_cast<Packing*>(context);
      for (uint32_t i; (i = self.next.fetch_add(1, std::memory_order_relaxed)) < self.pool.desc.n_layers * 2;) {
        const uint32_t layer = i / 2, which = i % 2;
        const KvPart& part = self.pool.part(which, layer);
        if (part.one_form) continue;
        const turbo_status status = part.codec->pack(part.self, &part.shape, self.pool.open_block(which, layer, self.open_id),
                                                     self.pool.packed_block(which, layer, self.block_id));
        int32_t none = TURBO_OK;
        if (status != TURBO_OK && self.status.compare_exchange_strong(none, status)) self.failed_layer = layer;
      }
    }
  } packing{pool, open_id, block_id};
  team.run(&Packing::body, &packing, std::min(team.size(), team.pace().now()));
  if (packing.status != TURBO_OK)
    refuse(packing.status, "packing block " + std::to_string(block_id) + " failed in layer " + std::to_string(packing.failed_layer.load()));
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

void pool_move_row(turbo_kv_pool& pool, const turbo_kv_place& src, const turbo_kv_place& dst) {
  if (src.row >= TURBO_KV_BLOCK || dst.row >= TURBO_KV_BLOCK) refuse(TURBO_INVALID_ARGUMENT, "row past the end of a block");
  for (const turbo_kv_place* place : {&src, &dst}) {
    if (pool.any_one_form) check_block(place->block_id, pool.n_blocks(), "block");
    if (pool.any_two_form) check_block(place->open_id, pool.n_open_blocks(), "open block");
  }
  for (uint32_t which : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V})
    for (uint32_t layer = 0; layer < pool.desc.n_layers; ++layer) {
      const KvPart& part = pool.part(which, layer);
      part.codec->move_row(part.self, &part.shape, pool.append_block(which, layer, src.block_id, src.open_id), src.row,
                           pool.append_block(which, layer, dst.block_id, dst.open_id), dst.row);
    }
}

}  // namespace turbo::arch_cpu
