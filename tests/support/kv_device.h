// The KV part of an arch pack, recorded instead of computed: what KvCache asks of a device.
#pragma once

#include <turbo/abi/draft/arch_pack.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace turbo::testing {

struct KvDevice {
  bool one_form = true;  // the open form is the final one
  uint32_t sinks = 0;
  bool fail_pack = false;
  std::vector<std::pair<int32_t, int32_t>> packed;                           // (open id, block id), in order
  std::vector<std::tuple<int32_t, uint32_t, int32_t, uint32_t>> moved_rows;  // source block and row, then destination
  std::map<std::pair<uint32_t, int32_t>, unsigned char> written;             // (form, id): last byte of kv_write
  uint32_t pools_alive = 0;
  uint32_t open_blocks_made = 0;

  static KvDevice& of(void* self) { return *static_cast<KvDevice*>(self); }
};

inline const turbo_arch_pack* kv_device_api() {
  static const turbo_arch_pack api = [] {
    turbo_arch_pack a{};
    a.struct_size = sizeof a;
    a.kv_bytes = [](void* self, const turbo_kv_pool_desc*, turbo_kv_bytes* bytes, turbo_error*) -> turbo_status {
      const KvDevice& device = KvDevice::of(self);
      bytes->open_is_packed = device.one_form;
      bytes->block_bytes = 1024;
      bytes->open_block_bytes = device.one_form ? 0 : 4096;
      bytes->sinks = device.sinks;
      return TURBO_OK;
    };
    a.kv_create = [](void* self, const turbo_kv_pool_desc* desc, turbo_kv_pool** pool, turbo_error*) -> turbo_status {
      ++KvDevice::of(self).pools_alive;
      KvDevice::of(self).open_blocks_made = desc->n_open_blocks;
      *pool = static_cast<turbo_kv_pool*>(self);
      return TURBO_OK;
    };
    a.kv_free = [](void* self, turbo_kv_pool*) { --KvDevice::of(self).pools_alive; };
    a.kv_pack = [](void* self, turbo_kv_pool*, int32_t open, int32_t block, turbo_error* error) -> turbo_status {
      KvDevice& device = KvDevice::of(self);
      if (device.fail_pack) {
        if (error) std::snprintf(error->message, sizeof error->message, "scripted failure");
        return TURBO_INTERNAL;
      }
      device.packed.emplace_back(open, block);
      return TURBO_OK;
    };
    a.kv_read = [](void* self, turbo_kv_pool*, int32_t id, uint32_t form, void* dst, uint64_t bytes, turbo_error*) -> turbo_status {
      const auto found = KvDevice::of(self).written.find({form, id});
      std::memset(dst, found == KvDevice::of(self).written.end() ? static_cast<int>(id) : found->second, bytes);
      return TURBO_OK;
    };
    a.kv_write = [](void* self, turbo_kv_pool*, int32_t id, uint32_t form, const void* src, uint64_t bytes, turbo_error*) -> turbo_status {
      KvDevice::of(self).written[{form, id}] = static_cast<const unsigned char*>(src)[bytes - 1];
      return TURBO_OK;
    };
    a.kv_move_row = [](void* self, turbo_kv_pool*, const turbo_kv_place* from, const turbo_kv_place* to, turbo_error*) -> turbo_status {
      const auto id = [](const turbo_kv_place* place) { return place->open_id >= 0 ? place->open_id : place->block_id; };
      KvDevice::of(self).moved_rows.emplace_back(id(from), from->row, id(to), to->row);
      return TURBO_OK;
    };
    return a;
  }();
  return &api;
}

}  // namespace turbo::testing
