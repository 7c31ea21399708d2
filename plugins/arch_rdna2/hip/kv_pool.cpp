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

namespace turbo::arch_rdna2 {
namespace {

constexpr uint64_t kAlignment = 256;

void lay_out(KvPart& part) {
  checked("", [&](turbo_error* error) { return part.codec.host->layout(part.codec.self, &part.shape, &part.layout, error); });
  if (!(part.layout.flags & TURBO_KV_OPEN_IS_PACKED) && !part.codec.device->pack)
    turbo_kv_pool::refuse(TURBO_INTERNAL, "its codec has no open form and no pack");
}

// The codec of K reads values of its own kind too, which another instance lays out: it is asked for their layout as well,
// so that it knows the shape before attend.
void introduce(const KvPart& k, const KvPart& v) {
  if (k.codec.fingerprint != v.codec.fingerprint || k.codec.self == v.codec.self) return;
  turbo_kv_layout same{};
  same.struct_size = sizeof same;
  checked("", [&](turbo_error* error) { return k.codec.host->layout(k.codec.self, &v.shape, &same, error); });
}

// Calls once for all layers of a side that one codec holds: call(part, kv, n), with the parts that `wanted` takes.
template <typename Wanted, typename Call>
void each_codec(const turbo_kv_pool& pool, Wanted&& wanted, Call&& call) {
  std::vector<turbo_device_kv> alike;
  for (const std::vector<KvPart>& side : pool.parts)
    for (size_t first = 0; first < side.size(); ++first) {
      const auto same = [&](const KvPart& part) { return part.codec.self == side[first].codec.self; };
      if (!wanted(side[first]) || std::any_of(side.begin(), side.begin() + static_cast<std::ptrdiff_t>(first), same)) continue;
      alike.clear();
      for (const KvPart& part : side)
        if (same(part)) alike.push_back(pool.kv(part.shape.side, part.shape.layer));
      call(side[first], alike.data(), static_cast<uint32_t>(alike.size()));
    }
}

}  // namespace

turbo_kv_pool describe_pool(const turbo_kv_pool_desc& desc, const Components& components) {
  turbo_kv_pool pool;
  const auto find = [&](uint32_t side, uint32_t layer) {
    KvPart part;
    part.codec = components.codec(side, layer);
    return part;
  };
  pool.describe(desc, kAlignment, find, lay_out);
  for (uint32_t layer = 0; layer < desc.n_layers; ++layer) introduce(pool.part(TURBO_KV_SIDE_K, layer), pool.part(TURBO_KV_SIDE_V, layer));
  return pool;
}

void allocate_pool(turbo_kv_pool& pool, hip::Device& device) {
  if (pool.desc.n_blocks == 0) pool.refuse(TURBO_INVALID_ARGUMENT, "no blocks");
  pool.packed = hip::DeviceMemory(device, TURBO_MEMORY_DEVICE, checked_mul(pool.block_bytes, pool.desc.n_blocks, "KV pool"), "kv");
  const uint64_t open = checked_mul(pool.open_block_bytes, pool.n_open_blocks(), "KV pool");
  if (open) pool.open = hip::DeviceMemory(device, TURBO_MEMORY_DEVICE, open, "kv");
}

void pool_pack(turbo_kv_pool& pool, int32_t open_id, int32_t block_id, turbo_stream* stream) {
  pool.check_pack(open_id, block_id);
  each_codec(pool, [](const KvPart& part) { return !part.one_form; },
             [&](const KvPart& part, const turbo_device_kv* kv, uint32_t n) {
               checked("KV pool: packing block " + std::to_string(block_id), [&](turbo_error* error) {
                 return part.codec.device->pack(part.codec.self, stream, kv, n, open_id, block_id, error);
               });
             });
}

uint8_t* pool_raw(turbo_kv_pool& pool, int32_t id, uint32_t form, uint64_t bytes) {
  const pack::KvPlace place = pool.whole(id, form, bytes);
  return (place.open ? pool.open : pool.packed).get<uint8_t>() + place.offset;
}

void pool_copy(turbo_kv_pool& pool, int32_t src, int32_t dst, uint32_t form, hip::Device& device) {
  const uint64_t bytes = pool.bytes_of(form);
  const uint8_t* from = pool_raw(pool, src, form, bytes);
  uint8_t* to = pool_raw(pool, dst, form, bytes);
  if (from == to) return;
  const turbo_device& table = *device.table();
  checked("KV pool: copy", [&](turbo_error* error) { return table.copy(table.ctx, table.stream, to, from, bytes, TURBO_COPY_ON_DEVICE, error); });
}

void pool_move_row(turbo_kv_pool& pool, const turbo_kv_place& src, const turbo_kv_place& dst, turbo_stream* stream) {
  pool.check_move(src, dst);
  each_codec(pool, [](const KvPart&) { return true; },
             [&](const KvPart& part, const turbo_device_kv* kv, uint32_t n) {
               const auto id = [&](const turbo_kv_place& place) { return part.one_form ? place.block_id : place.open_id; };
               checked("KV pool: moving a row", [&](turbo_error* error) {
                 return part.codec.device->move_row(part.codec.self, stream, kv, n, id(src), src.row, id(dst), dst.row, error);
               });
             });
}

}  // namespace turbo::arch_rdna2
