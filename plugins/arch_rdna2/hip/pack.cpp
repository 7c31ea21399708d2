#include "pack.h"

#include "runtime/discover.h"

#include <turbo/pack/program_check.hpp>

#include <algorithm>
#include <cstring>

namespace turbo::arch_rdna2 {
namespace {

constexpr uint32_t kMostThreads = 8;  // that repack a matrix; the copy to the device is what takes long

const turbo_device* provide(void* self) { return self ? static_cast<Pack*>(self)->device_table() : nullptr; }
const turbo_device_provider kProvider = {sizeof(turbo_device_provider), 0, &provide};

}  // namespace

Pack::Pack(const Host& host)
    : host_(host), graphs_(host.option("graphs", true)), fuse_(host.option("fuse", true)), step_kernel_(host.option("step_kernel", false)),
      threads_(static_cast<uint32_t>(std::clamp<int64_t>(host.option("threads", int64_t{1}), 1, kMostThreads))),
      components_(host.service<turbo_host_registry>(TURBO_HOST_REGISTRY_DRAFT)) {
  device_ = hip::open_device(host);
  ops_ = std::make_unique<Ops>(*device_->table());
  staging_ = std::make_unique<Staging>(*device_);
  scratch_ = std::make_unique<Scratch>(*device_);
  if (step_kernel_ && graphs_ && fuse_) step_kernels_ = StepKernels::create(*device_, step_trial());
}

Pack::~Pack() {
  guarded(nullptr, [&] {
    if (step_kernels_) step_kernels_->write_moments(*staging_);
  });
}

void Pack::probe(const Host& host, const turbo_probe_facts&, Probe& answer) {
  hip::probe_device(host, answer);
}

const void* Pack::interface(std::string_view id) {
  if (id == TURBO_DEVICE_PROVIDER_DRAFT) return &kProvider;
  return ArchPack<Pack>::interface(id);
}

PlanTools Pack::tools() { return {*device_, *ops_, *scratch_, graphs_, fuse_, step_kernels_.get()}; }

void Pack::device(turbo_device_info& info) {
  const hip::DeviceFacts& facts = device_->facts();
  info.threads = facts.compute_units;
  std::snprintf(info.name, sizeof info.name, "%s", facts.name.c_str());
  std::snprintf(info.isa, sizeof info.isa, "%s", facts.isa.c_str());
  info.memory_bytes = device_->runtime().memory_free() + device_->bytes(TURBO_MEMORY_DEVICE);
}

bool Pack::supports(uint32_t op_kind) const noexcept { return pack::op_known(op_kind); }

void Pack::self_test() { run_self_test(tools(), *staging_); }

turbo_weight* Pack::weight_load(const turbo_weight_source& source) {
  std::unique_ptr<turbo_weight> weight = load_weight(source, components_, *device_, *staging_, threads_);
  turbo_weight* handle = weight.get();
  weights_.emplace(handle, std::move(weight));
  return handle;
}

void Pack::kv_bytes(const turbo_kv_pool_desc& desc, turbo_kv_bytes& bytes) {
  const turbo_kv_pool pool = describe_pool(desc, components_);
  bytes = {sizeof(turbo_kv_bytes), pool.one_form(), pool.block_bytes, pool.open_block_bytes, pool.sinks, 0};
}

turbo_kv_pool* Pack::kv_create(const turbo_kv_pool_desc& desc) {
  auto pool = std::make_unique<turbo_kv_pool>(describe_pool(desc, components_));
  allocate_pool(*pool, *device_);
  turbo_kv_pool* handle = pool.get();
  pools_.emplace(handle, std::move(pool));
  return handle;
}

turbo_kv_pool& Pack::own(turbo_kv_pool* pool) const {
  if (!pools_.count(pool)) throw Failure(TURBO_INVALID_ARGUMENT, "KV pool: not one of this pack");
  return *pool;
}

void Pack::kv_pack(turbo_kv_pool* pool, int32_t open_id, int32_t block_id) { pool_pack(own(pool), open_id, block_id, device_->stream()); }
void Pack::kv_copy(turbo_kv_pool* pool, int32_t src, int32_t dst, uint32_t form) { pool_copy(own(pool), src, dst, form, *device_); }
void Pack::kv_move_row(turbo_kv_pool* pool, const turbo_kv_place& src, const turbo_kv_place& dst) {
  pool_move_row(own(pool), src, dst, device_->stream());
}
void Pack::kv_read(turbo_kv_pool* pool, int32_t id, uint32_t form, void* dst, uint64_t bytes) {
  staging_->to_host(dst, pool_raw(own(pool), id, form, bytes), bytes);
}
void Pack::kv_write(turbo_kv_pool* pool, int32_t id, uint32_t form, const void* src, uint64_t bytes) {
  staging_->to_device(pool_raw(own(pool), id, form, bytes), src, bytes);
}

turbo_step_table* Pack::table_create(const turbo_step_caps& caps) {
  auto table = std::make_unique<StepTable>(caps, *device_);
  turbo_step_table* handle = table.get();
  tables_.emplace(handle, std::move(table));
  return handle;
}

void Pack::table_free(turbo_step_table* table) {
  const auto found = tables_.find(table);
  if (found == tables_.end()) return;
  for (const auto& [key, plan] : plans_) plan->drop_graphs(found->second.get());
  tables_.erase(found);
}

turbo_plan* Pack::compile(const turbo_program& program) {
  std::unique_ptr<turbo_plan> plan = compile_plan(program, *this, tools());
  turbo_plan* handle = plan.get();
  plans_.emplace(handle, std::move(plan));
  return handle;
}

turbo_plan& Pack::own(turbo_plan* plan) const {
  if (!plans_.count(plan)) throw Failure(TURBO_INVALID_ARGUMENT, "the plan is not one of this pack");
  return *plan;
}

void Pack::run(turbo_plan* plan, turbo_step_table& table) {
  const auto known = tables_.find(&table);
  if (known == tables_.end()) throw Failure(TURBO_INVALID_ARGUMENT, "run: the step table is not one of this pack");
  run_plan(own(plan), *known->second, tools(), *staging_, [this](const std::string& why) { host_.log(TURBO_LOG_WARN, why); });
}

void Pack::sync() {
  const turbo_device& table = *device_->table();
  checked("", [&](turbo_error* error) { return table.sync(table.ctx, table.stream, error); });
  if (!step_kernels_ || !step_kernels_->stopped()) return;
  // Keys that the step wrote are written again by the next one; plans are recorded anew, without step kernels.
  step_kernels_->forbid();
  host_.log(TURBO_LOG_WARN, "a step kernel waited in vain for another block of its own; steps are launched kernel by kernel from here on");
  throw Failure(TURBO_CANCELLED, "the blocks of a step kernel did not all run at once", "run the step again");
}

const turbo_buffer& Pack::readable(const turbo_plan& plan, uint32_t buffer) const {
  if (buffer >= plan.buffers.size() || !plan.places[buffer].always)
    throw Failure(TURBO_INVALID_ARGUMENT, "plan '" + plan.name + "': buffer " + std::to_string(buffer) + " is neither kept nor an input",
                  "set keep on the buffer");
  return plan.buffers[buffer];
}

void Pack::plan_buffer(turbo_plan* plan, uint32_t buffer, turbo_view& view) {
  const turbo_plan& p = own(plan);
  const turbo_buffer& b = readable(p, buffer);
  const BufferPlace& place = p.places[buffer];
  view.type = TURBO_TYPE_F32;
  view.data = p.row(buffer, 0);
  view.bytes = ((place.rows - 1) * place.stride + b.width) * sizeof(float);
  view.rank = 2;
  view.memory = place.pinned ? TURBO_MEMORY_PINNED : TURBO_MEMORY_DEVICE;
  view.device = static_cast<int32_t>(device_->facts().index);
  view.shape[0] = place.rows;
  view.shape[1] = b.width;
  view.stride[0] = place.stride * sizeof(float);
  view.stride[1] = sizeof(float);
}

void Pack::plan_read(turbo_plan* plan, uint32_t buffer, uint64_t row_begin, uint64_t n_rows, float* dst) {
  const turbo_plan& p = own(plan);
  const turbo_buffer& b = readable(p, buffer);
  const BufferPlace& place = p.places[buffer];
  if (row_begin > place.rows || n_rows > place.rows - row_begin)
    throw Failure(TURBO_INVALID_ARGUMENT, "plan '" + p.name + "': rows " + std::to_string(row_begin) + " to " + std::to_string(row_begin + n_rows) +
                                              " of " + std::to_string(place.rows));
  if (place.pinned) {
    sync();
    for (uint64_t i = 0; i < n_rows; ++i) std::memcpy(dst + i * b.width, p.row(buffer, row_begin + i), b.width * sizeof(float));
    return;
  }
  staging_->rows_to_host(dst, p.row(buffer, row_begin), n_rows, b.width * sizeof(float), place.stride * sizeof(float));
}

}  // namespace turbo::arch_rdna2
