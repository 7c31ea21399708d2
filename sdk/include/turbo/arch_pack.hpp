// Base class of arch packs over abi/draft/arch_pack.h (draft), and a step table in host memory.
//
// Handles (turbo_weight, turbo_plan, ...) are the pack's own: derive your types from nothing and cast. KV calls have
// defaults that refuse, so a pack can grow op by op. Calls are [engine] unless the C header says [load].
#pragma once

#include <turbo/abi/draft/arch_pack.h>
#include <turbo/plugin.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace turbo {

/// A step table whose arrays lie in host memory. The table's address and its arrays' addresses stay fixed.
class HostStepTable {
 public:
  static constexpr uint64_t kMaxEntries = uint64_t{1} << 30;

  explicit HostStepTable(const turbo_step_caps& caps) {
    const uint64_t rows = caps.rows, sequences = caps.sequences;
    const uint64_t paths = rows * caps.path, blocks = sequences * caps.blocks_per_sequence;
    const uint64_t masks = TURBO_HAS(&caps, mask_words) ? uint64_t{caps.logit_rows} * caps.mask_words : 0;
    if (paths > kMaxEntries || blocks > kMaxEntries || masks > kMaxEntries || rows > kMaxEntries || sequences > kMaxEntries || caps.logit_rows > kMaxEntries)
      throw Failure(TURBO_RESOURCE_EXHAUSTED, "step table: more than 2^30 entries");
    table_.struct_size = sizeof table_;
    table_.row_capacity = caps.rows;
    table_.seq_capacity = caps.sequences;
    table_.logit_capacity = caps.logit_rows;
    table_.block_capacity = caps.blocks_per_sequence;
    table_.path_capacity = caps.path;
    storage_.reset(new int32_t[5 * rows + paths + sequences + 2 * blocks + caps.logit_rows + 1]());
    int32_t* next = storage_.get();
    const auto take = [&next](uint64_t n) { return std::exchange(next, next + n); };
    table_.token = take(rows);
    table_.position = take(rows);
    table_.row_seq = take(rows);
    table_.slot = take(rows);
    table_.path_length = take(rows);
    table_.path = take(paths);
    table_.committed = take(sequences);
    table_.block_table = take(blocks);
    table_.open_table = take(blocks);
    table_.logit_row = take(caps.logit_rows);
    std::fill_n(table_.block_table, 2 * blocks, -1);
    if (masks == 0) return;
    masks_.reset(new uint32_t[masks]());
    table_.mask = masks_.get();
    table_.mask_words = caps.mask_words;
  }
  turbo_step_table* get() { return &table_; }
  /// The owner of a table that get() handed out.
  static HostStepTable* of(turbo_step_table* table) {
    static_assert(std::is_standard_layout_v<HostStepTable>);
    return reinterpret_cast<HostStepTable*>(table);
  }

 private:
  turbo_step_table table_{};  // first: of() relies on it
  std::unique_ptr<int32_t[]> storage_;
  std::unique_ptr<uint32_t[]> masks_;
};

template <typename T>
class ArchPack {
 public:
  virtual ~ArchPack() = default;

  virtual void device(turbo_device_info& info) = 0;
  virtual bool supports(uint32_t op_kind) const noexcept = 0;
  /// Throws when an op gives another answer than the known one.
  virtual void self_test() {}

  virtual turbo_weight* weight_load(const turbo_weight_source& source) = 0;
  virtual uint64_t weight_bytes(const turbo_weight* weight) const = 0;
  virtual bool weight_in_place(const turbo_weight* /*weight*/) const { return false; }
  virtual void weight_free(turbo_weight* weight) = 0;

  virtual void kv_bytes(const turbo_kv_pool_desc&, turbo_kv_bytes&) { no_kv(); }
  virtual turbo_kv_pool* kv_create(const turbo_kv_pool_desc&) { return no_kv(), nullptr; }
  virtual void kv_free(turbo_kv_pool*) {}
  virtual void kv_pack(turbo_kv_pool*, int32_t /*open_id*/, int32_t /*block_id*/) { no_kv(); }
  virtual void kv_copy(turbo_kv_pool*, int32_t /*src*/, int32_t /*dst*/, uint32_t /*form*/) { no_kv(); }
  virtual void kv_move_row(turbo_kv_pool*, const turbo_kv_place& /*src*/, const turbo_kv_place& /*dst*/) { no_kv(); }
  virtual void kv_read(turbo_kv_pool*, int32_t /*id*/, uint32_t /*form*/, void* /*dst*/, uint64_t /*bytes*/) { no_kv(); }
  virtual void kv_write(turbo_kv_pool*, int32_t /*id*/, uint32_t /*form*/, const void* /*src*/, uint64_t /*bytes*/) { no_kv(); }

  /// The default: a HostStepTable.
  virtual turbo_step_table* table_create(const turbo_step_caps& caps) { return (new HostStepTable(caps))->get(); }
  virtual void table_free(turbo_step_table* table) { delete HostStepTable::of(table); }

  virtual turbo_plan* compile(const turbo_program& program) = 0;
  virtual uint64_t plan_bytes(const turbo_plan* plan) const = 0;
  virtual void plan_free(turbo_plan* plan) = 0;
  virtual void run(turbo_plan* plan, turbo_step_table& table) = 0;
  /// Not overridden: run is synchronous.
  virtual void sync() {}
  virtual void plan_buffer(turbo_plan* plan, uint32_t buffer, turbo_view& view) = 0;
  /// Not overridden: plan_buffer gives host memory.
  virtual void plan_read(turbo_plan* /*plan*/, uint32_t /*buffer*/, uint64_t /*row_begin*/, uint64_t /*n_rows*/, float* /*dst*/) {}
  virtual const char* plan_explain(const turbo_plan* /*plan*/) const { return "plain"; }

  static const void* interface(std::string_view id) {
    static constexpr turbo_arch_pack table = make_table();
    return id == TURBO_ARCH_PACK_DRAFT ? &table : nullptr;
  }

 private:
  [[noreturn]] static void no_kv() { throw Failure(TURBO_UNSUPPORTED, "KV cache: this pack has none"); }
  static T& at(void* self) {
    detail::check(self != nullptr, "pack instance is null");
    return *static_cast<T*>(self);
  }
  template <typename Call>
  static turbo_status call(void* self, bool arguments_ok, const char* name, turbo_error* error, Call&& body) noexcept {
    return guarded(error, [&] {
      detail::check(arguments_ok, name);
      body(at(self));
    });
  }
  template <typename Call>
  static void quiet(void* self, Call&& body) noexcept {
    guarded(nullptr, [&] { body(at(self)); });
  }

  static turbo_status c_device(void* self, turbo_device_info* info, turbo_error* error) noexcept {
    return call(self, info && TURBO_HAS(info, memory_bytes), "device", error, [&](T& t) {
      detail::fill_out(info, [&](turbo_device_info& out) { t.device(out); });
    });
  }
  static uint32_t c_supports(void* self, uint32_t op_kind) noexcept { return self && static_cast<T*>(self)->supports(op_kind); }
  static turbo_status c_self_test(void* self, turbo_error* error) noexcept {
    return call(self, true, "self_test", error, [&](T& t) { t.self_test(); });
  }
  static turbo_status c_weight_load(void* self, const turbo_weight_source* source, turbo_weight** weight, turbo_error* error) noexcept {
    return call(self, source && TURBO_HAS(source, shard) && source->data && weight, "weight_load", error,
                [&](T& t) { *weight = t.weight_load(*source); });
  }
  static uint64_t c_weight_bytes(void* self, const turbo_weight* weight) noexcept {
    uint64_t bytes = 0;
    quiet(self, [&](T& t) { bytes = weight ? t.weight_bytes(weight) : 0; });
    return bytes;
  }
  static uint32_t c_weight_in_place(void* self, const turbo_weight* weight) noexcept {
    uint32_t answer = 0;
    quiet(self, [&](T& t) { answer = weight && t.weight_in_place(weight); });
    return answer;
  }
  static void c_weight_free(void* self, turbo_weight* weight) noexcept {
    if (weight) quiet(self, [&](T& t) { t.weight_free(weight); });
  }
  static turbo_status c_kv_bytes(void* self, const turbo_kv_pool_desc* desc, turbo_kv_bytes* bytes, turbo_error* error) noexcept {
    return call(self, desc && TURBO_HAS(desc, n_open_blocks) && bytes && TURBO_HAS(bytes, reserved), "kv_bytes", error, [&](T& t) {
      detail::fill_out(bytes, [&](turbo_kv_bytes& out) { t.kv_bytes(*desc, out); });
    });
  }
  static turbo_status c_kv_create(void* self, const turbo_kv_pool_desc* desc, turbo_kv_pool** pool, turbo_error* error) noexcept {
    return call(self, desc && TURBO_HAS(desc, n_open_blocks) && pool, "kv_create", error, [&](T& t) { *pool = t.kv_create(*desc); });
  }
  static void c_kv_free(void* self, turbo_kv_pool* pool) noexcept {
    if (pool) quiet(self, [&](T& t) { t.kv_free(pool); });
  }
  static turbo_status c_kv_pack(void* self, turbo_kv_pool* pool, int32_t open_id, int32_t block_id, turbo_error* error) noexcept {
    return call(self, pool, "kv_pack", error, [&](T& t) { t.kv_pack(pool, open_id, block_id); });
  }
  static turbo_status c_kv_copy(void* self, turbo_kv_pool* pool, int32_t src, int32_t dst, uint32_t form, turbo_error* error) noexcept {
    return call(self, pool, "kv_copy", error, [&](T& t) { t.kv_copy(pool, src, dst, form); });
  }
  static turbo_status c_kv_move_row(void* self, turbo_kv_pool* pool, const turbo_kv_place* src, const turbo_kv_place* dst,
                                    turbo_error* error) noexcept {
    return call(self, pool && src && TURBO_HAS(src, open_id) && dst && TURBO_HAS(dst, open_id), "kv_move_row", error,
                [&](T& t) { t.kv_move_row(pool, *src, *dst); });
  }
  static turbo_status c_kv_read(void* self, turbo_kv_pool* pool, int32_t id, uint32_t form, void* dst, uint64_t bytes,
                                turbo_error* error) noexcept {
    return call(self, pool && dst, "kv_read", error, [&](T& t) { t.kv_read(pool, id, form, dst, bytes); });
  }
  static turbo_status c_kv_write(void* self, turbo_kv_pool* pool, int32_t id, uint32_t form, const void* src, uint64_t bytes,
                                 turbo_error* error) noexcept {
    return call(self, pool && src, "kv_write", error, [&](T& t) { t.kv_write(pool, id, form, src, bytes); });
  }
  static turbo_status c_table_create(void* self, const turbo_step_caps* caps, turbo_step_table** table, turbo_error* error) noexcept {
    return call(self, caps && TURBO_HAS(caps, path) && table, "table_create", error, [&](T& t) { *table = t.table_create(*caps); });
  }
  static void c_table_free(void* self, turbo_step_table* table) noexcept {
    if (table) quiet(self, [&](T& t) { t.table_free(table); });
  }
  static turbo_status c_compile(void* self, const turbo_program* program, turbo_plan** plan, turbo_error* error) noexcept {
    return call(self, program && TURBO_HAS(program, name) && plan, "compile", error, [&](T& t) { *plan = t.compile(*program); });
  }
  static uint64_t c_plan_bytes(void* self, const turbo_plan* plan) noexcept {
    uint64_t bytes = 0;
    quiet(self, [&](T& t) { bytes = plan ? t.plan_bytes(plan) : 0; });
    return bytes;
  }
  static void c_plan_free(void* self, turbo_plan* plan) noexcept {
    if (plan) quiet(self, [&](T& t) { t.plan_free(plan); });
  }
  static turbo_status c_run(void* self, turbo_plan* plan, turbo_step_table* table, turbo_error* error) noexcept {
    return call(self, plan && table && TURBO_HAS(table, logit_row), "run", error, [&](T& t) { t.run(plan, *table); });
  }
  static turbo_status c_sync(void* self, turbo_error* error) noexcept {
    return call(self, true, "sync", error, [&](T& t) { t.sync(); });
  }
  static turbo_status c_plan_buffer(void* self, turbo_plan* plan, uint32_t buffer, turbo_view* view, turbo_error* error) noexcept {
    return call(self, plan && view && TURBO_HAS(view, stride), "plan_buffer", error, [&](T& t) {
      detail::fill_out(view, [&](turbo_view& out) { t.plan_buffer(plan, buffer, out); });
    });
  }
  static const char* c_plan_explain(void* self, const turbo_plan* plan) noexcept {
    const char* text = "";
    quiet(self, [&](T& t) { text = plan ? t.plan_explain(plan) : ""; });
    return text;
  }

  static turbo_status c_plan_read(void* self, turbo_plan* plan, uint32_t buffer, uint64_t row_begin, uint64_t n_rows, float* dst,
                                  turbo_error* error) noexcept {
    return call(self, plan && dst, "plan_read", error, [&](T& t) { t.plan_read(plan, buffer, row_begin, n_rows, dst); });
  }

  static constexpr turbo_arch_pack make_table() {
    constexpr bool reads = !std::is_same_v<decltype(&T::plan_read), decltype(&ArchPack::plan_read)>;
    constexpr bool waits = !std::is_same_v<decltype(&T::sync), decltype(&ArchPack::sync)>;
    return {sizeof(turbo_arch_pack), 0, &c_device, &c_supports, &c_self_test, &c_weight_load, &c_weight_bytes, &c_weight_in_place,
            &c_weight_free, &c_kv_bytes, &c_kv_create, &c_kv_free, &c_kv_pack, &c_kv_copy, &c_kv_move_row, &c_kv_read, &c_kv_write,
            &c_table_create, &c_table_free, &c_compile, &c_plan_bytes, &c_plan_free, &c_run, waits ? &c_sync : nullptr, &c_plan_buffer,
            &c_plan_explain, reads ? &c_plan_read : nullptr};
  }
};

}  // namespace turbo
