#include "kv_pool.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace turbo::arch_cpu {
namespace {

KvPart find_part(uint32_t which, uint32_t layer, const CodecSource& codecs) {
  KvPart part;
  turbo_error error{};
  error.struct_size = sizeof error;
  const turbo_status status = codecs.find(codecs.ctx, which, layer, &part.codec, &part.self, &error);
  if (status != TURBO_OK || !part.codec)
    throw Failure(status != TURBO_OK ? status : TURBO_UNSUPPORTED, error.message[0] ? error.message : "KV pool: no codec", error.hint);
  return part;
}

void lay_out(KvPart& part) {
  turbo_error error{};
  error.struct_size = sizeof error;
  const turbo_status status = part.codec->layout(part.self, &part.shape, &part.layout, &error);
  if (status != TURBO_OK) throw Failure(status, error.message, error.hint);
  if (part.layout.query_floats < part.shape.head_dim || part.layout.query_floats > 65536)
    turbo_kv_pool::refuse(TURBO_INTERNAL, "its codec announces an impossible layout");
  if (!(part.layout.flags & TURBO_KV_OPEN_IS_PACKED) && !part.codec->pack) turbo_kv_pool::refuse(TURBO_INTERNAL, "its codec has no open form and no pack");
  part.query_stride = static_cast<uint32_t>(align_up(part.layout.query_floats, 16));
}

}  // namespace

turbo_kv_pool describe_pool(const turbo_kv_pool_desc& desc, const CodecSource& codecs) {
  if (!codecs.find) turbo_kv_pool::refuse(TURBO_UNSUPPORTED, "the host offers no KV codecs");
  turbo_kv_pool pool;
  pool.describe(desc, kHugePage, [&](uint32_t which, uint32_t layer) { return find_part(which, layer, codecs); }, lay_out);
  return pool;
}

void allocate_pool(turbo_kv_pool& pool, const turbo_host_alloc* alloc) {
  if (pool.desc.n_blocks == 0) pool.refuse(TURBO_INVALID_ARGUMENT, "no blocks");
  const uint64_t alignment = std::max<uint64_t>(4096, pool.alignment());
  // Large pages only where a block fills them: the pool is touched block by block, and RSS should follow what is used.
  const bool huge = pool.block_bytes >= kHugePage;
  pool.packed = Memory(alloc, checked_mul(pool.block_bytes, pool.desc.n_blocks, "KV pool"), alignment, "kv", huge);
  pool.open = Memory(alloc, checked_mul(pool.open_block_bytes, pool.n_open_blocks(), "KV pool"), alignment, "kv", false);
}

void pool_pack(turbo_kv_pool& pool, int32_t open_id, int32_t block_id, ThreadTeam& team) {
  pool.check_pack(open_id, block_id);
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
    pool.refuse(packing.status, "packing block " + std::to_string(block_id) + " failed in layer " + std::to_string(packing.failed_layer.load()));
}

uint8_t* pool_raw(turbo_kv_pool& pool, int32_t id, uint32_t form, uint64_t bytes) {
  const pack::KvPlace place = pool.whole(id, form, bytes);
  return (place.open ? pool.open : pool.packed).data() + place.offset;
}

void pool_copy(turbo_kv_pool& pool, int32_t src, int32_t dst, uint32_t form) {
  const uint64_t bytes = pool.bytes_of(form);
  const uint8_t* from = pool_raw(pool, src, form, bytes);
  uint8_t* to = pool_raw(pool, dst, form, bytes);
  if (from != to) std::memcpy(to, from, bytes);
}

void pool_move_row(turbo_kv_pool& pool, const turbo_kv_place& src, const turbo_kv_place& dst) {
  pool.check_move(src, dst);
  for (uint32_t which : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V})
    for (uint32_t layer = 0; layer < pool.desc.n_layers; ++layer) {
      const KvPart& part = pool.part(which, layer);
      part.codec->move_row(part.self, &part.shape, pool.append_block(which, layer, src.block_id, src.open_id), src.row,
                           pool.append_block(which, layer, dst.block_id, dst.open_id), dst.row);
    }
}

}  // namespace turbo::arch_cpu
