#include "pack.h"

#include <turbo/kernel/tree_ops.hpp>
#include <turbo/kernel/tree_ops_check.hpp>
#include <turbo/pack/program_check.hpp>

#include <algorithm>
#include <cstring>

namespace turbo::arch_cpu {
namespace {

constexpr uint32_t kMaxThreads = 1024;

std::string describe_isa(const CpuIsaChoice& choice) {
  std::string name = cpu_isa_name(choice.isa);
  if (choice.isa == CpuIsa::avx512) name += "_vnni";
  return name;
}

Pack& pack(void* self) { return *static_cast<Pack*>(self); }

// A struct whose size is smaller than what this pack was compiled with is refused.
template <typename T>
const T& sized(const T* value, const char* what) {
  if (!value || value->struct_size < sizeof(T)) throw Failure(TURBO_INVALID_ARGUMENT, std::string(what) + ": struct_size does not fit");
  return *value;
}

turbo_status device(void* self, turbo_device_info* info, turbo_error* error) {
  return guarded(error, [&] { pack(self).device(*info); });
}
uint32_t supports(void*, uint32_t kind) { return pack::op_known(kind); }
turbo_status self_test(void* self, turbo_error* error) {
  return guarded(error, [&] { pack(self).self_test(); });
}

turbo_status weight_load(void* self, const turbo_weight_source* source, turbo_weight** weight, turbo_error* error) {
  return guarded(error, [&] { *weight = pack(self).weight_load(sized(source, "weight source")); });
}
uint64_t weight_bytes(void*, const turbo_weight* weight) { return weight ? weight->bytes() : 0; }
uint32_t weight_in_place(void*, const turbo_weight* weight) { return weight && weight->in_place; }
void weight_free(void* self, turbo_weight* weight) { pack(self).weight_free(weight); }

turbo_status kv_bytes(void* self, const turbo_kv_pool_desc* desc, turbo_kv_bytes* bytes, turbo_error* error) {
  return guarded(error, [&] { pack(self).kv_bytes(sized(desc, "KV pool"), *bytes); });
}
turbo_status kv_create(void* self, const turbo_kv_pool_desc* desc, turbo_kv_pool** pool, turbo_error* error) {
  return guarded(error, [&] { *pool = pack(self).kv_create(sized(desc, "KV pool")); });
}
void kv_free(void* self, turbo_kv_pool* pool) { pack(self).kv_free(pool); }
turbo_status kv_pack(void* self, turbo_kv_pool* pool, int32_t open_id, int32_t block_id, turbo_error* error) {
  return guarded(error, [&] { pack(self).kv_pack(pool, open_id, block_id); });
}
turbo_status kv_copy(void* self, turbo_kv_pool* pool, int32_t src, int32_t dst, uint32_t form, turbo_error* error) {
  return guarded(error, [&] { pool_copy(pack(self).own(pool), src, dst, form); });
}
turbo_status kv_move_row(void* self, turbo_kv_pool* pool, const turbo_kv_place* src, const turbo_kv_place* dst, turbo_error* error) {
  return guarded(error, [&] { pool_move_row(pack(self).own(pool), sized(src, "source place"), sized(dst, "target place")); });
}
turbo_status kv_read(void* self, turbo_kv_pool* pool, int32_t id, uint32_t form, void* dst, uint64_t bytes, turbo_error* error) {
  return guarded(error, [&] { std::memcpy(dst, pool_raw(pack(self).own(pool), id, form, bytes), bytes); });
}
turbo_status kv_write(void* self, turbo_kv_pool* pool, int32_t id, uint32_t form, const void* src, uint64_t bytes, turbo_error* error) {
  return guarded(error, [&] { std::memcpy(pool_raw(pack(self).own(pool), id, form, bytes), src, bytes); });
}

turbo_status table_create(void* self, const turbo_step_caps* caps, turbo_step_table** table, turbo_error* error) {
  return guarded(error, [&] { *table = pack(self).table_create(sized(caps, "step table")); });
}
void table_free(void* self, turbo_step_table* table) { pack(self).table_free(table); }

turbo_status compile(void* self, const turbo_program* program, turbo_plan** plan, turbo_error* error) {
  return guarded(error, [&] { *plan = pack(self).compile(sized(program, "program")); });
}
uint64_t plan_bytes(void*, const turbo_plan* plan) { return plan ? plan->bytes() : 0; }
void plan_free(void* self, turbo_plan* plan) { pack(self).plan_free(plan); }
turbo_status run(void* self, turbo_plan* plan, turbo_step_table* table, turbo_error* error) {
  return guarded(error, [&] { pack(self).run(plan, table); });
}
turbo_status plan_buffer(void* self, turbo_plan* plan, uint32_t buffer, turbo_view* view, turbo_error* error) {
  return guarded(error, [&] { pack(self).plan_buffer(plan, buffer, *view); });
}
const char* plan_explain(void*, const turbo_plan* plan) { return plan ? plan->explanation.c_str() : ""; }

const turbo_arch_pack kTable = {
    sizeof(turbo_arch_pack), 0,         &device,   &supports, &self_test,    &weight_load,  &weight_bytes, &weight_in_place, &weight_free,
    &kv_bytes,               &kv_create, &kv_free, &kv_pack,  &kv_copy,      &kv_move_row,  &kv_read,      &kv_write,        &table_create,
    &table_free,             &compile,   &plan_bytes, &plan_free, &run,      nullptr,       &plan_buffer,  &plan_explain};

}  // namespace

const Kernels& kernels_for(CpuIsa isa) {
  return isa == CpuIsa::avx512 ? avx512_kernels() : isa == CpuIsa::avx2 ? avx2_kernels() : scalar_kernels();
}

Pack::Pack(const Host& host) : host_(host), alloc_(host.service<turbo_host_alloc>(TURBO_HOST_ALLOC)), isa_(choose_cpu_isa()) {
  if (!isa_.problem.empty()) throw Failure(TURBO_UNSUPPORTED, isa_.problem, "unset TURBO_CPU_ISA");
  isa_name_ = describe_isa(isa_);
  kernels_ = &kernels_for(isa_.isa);
  const int64_t threads = host_.option("threads", int64_t{0});
  if (threads < 0 || threads > kMaxThreads)
    throw Failure(TURBO_INVALID_ARGUMENT, "option 'threads': " + std::to_string(threads) + " is not in 0.." + std::to_string(kMaxThreads));
}

void Pack::probe(const Host&, const turbo_probe_facts&, Probe& answer) {
  const CpuIsaChoice choice = choose_cpu_isa();
  answer.score = choice.problem.empty() ? 100 : 0;
  answer.reason = choice.problem.empty() ? describe_isa(choice) + ", " + std::to_string(available_cpus()) + " CPUs" : choice.problem;
}

const void* Pack::interface(std::string_view id) {
  if (id == TURBO_TREE_OPS_DRAFT) return tree_ops::host_table();
  return id == TURBO_ARCH_PACK_DRAFT ? &kTable : nullptr;
}

uint32_t Pack::thread_count() const {
  int64_t n = host_.option("threads", int64_t{0});
  const turbo_host_threads* granted = host_.service<turbo_host_threads>(TURBO_HOST_THREADS);
  if (n == 0) n = granted && granted->compute_threads ? granted->compute_threads : available_cpus();
  return static_cast<uint32_t>(std::clamp<int64_t>(n, 1, kMaxThreads));
}

void Pack::start() { team(); }

// Before start and after stop the pack still works, on the calling thread or a team made on demand.
ThreadTeam& Pack::team() {
  if (!team_) team_ = std::make_unique<ThreadTeam>(thread_count());
  return *team_;
}

void Pack::stop() {
  if (team_) team_->stop();
}

void Pack::device(turbo_device_info& info) const {
  info = {};
  info.struct_size = sizeof info;
  info.threads = team_ ? team_->size() : thread_count();
  std::snprintf(info.name, sizeof info.name, "%s", cpu_name().c_str());
  std::snprintf(info.isa, sizeof info.isa, "%s", isa_name_.c_str());
  info.memory_bytes = usable_memory_bytes();
}

void Pack::self_test() {
  run_self_test(team(), *kernels_, isa_name_.c_str());
  if (const char* fault = tree_ops::find_fault(*tree_ops::host_table(), this)) throw Failure(TURBO_INTERNAL, std::string("self-test: tree ops: ") + fault);
}

FormatSource Pack::formats() const {
  const turbo_host_registry* registry = host_.service<turbo_host_registry>(TURBO_HOST_REGISTRY_DRAFT);
  return registry ? FormatSource{registry->ctx, registry->weight_format} : FormatSource{};
}
CodecSource Pack::codecs() const {
  const turbo_host_registry* registry = host_.service<turbo_host_registry>(TURBO_HOST_REGISTRY_DRAFT);
  return registry ? CodecSource{registry->ctx, registry->kv_codec} : CodecSource{};
}

turbo_weight* Pack::weight_load(const turbo_weight_source& source) {
  std::unique_ptr<turbo_weight> weight(load_weight(source, formats(), alloc_, team()));
  turbo_weight* handle = weight.get();
  weights_.emplace(handle, std::move(weight));
  return handle;
}

void Pack::kv_bytes(const turbo_kv_pool_desc& desc, turbo_kv_bytes& bytes) const {
  const turbo_kv_pool pool = describe_pool(desc, codecs());
  bytes = {sizeof(turbo_kv_bytes), pool.one_form(), pool.block_bytes, pool.open_block_bytes, pool.sinks, 0};
}

turbo_kv_pool* Pack::kv_create(const turbo_kv_pool_desc& desc) {
  auto pool = std::make_unique<turbo_kv_pool>(describe_pool(desc, codecs()));
  allocate_pool(*pool, alloc_);
  turbo_kv_pool* handle = pool.get();
  pools_.emplace(handle, std::move(pool));
  return handle;
}

turbo_kv_pool& Pack::own(turbo_kv_pool* pool) const {
  if (!this->pool(pool)) throw Failure(TURBO_INVALID_ARGUMENT, "KV pool: not one of this pack");
  return *pool;
}

turbo_step_table* Pack::table_create(const turbo_step_caps& caps) {
  auto table = std::make_unique<StepTable>(caps);
  turbo_step_table* handle = table.get();
  tables_.emplace(handle, std::move(table));
  return handle;
}

turbo_plan* Pack::compile(const turbo_program& program) {
  std::unique_ptr<turbo_plan> plan = compile_plan(program, *this, alloc_, team().size(), isa_name_.c_str());
  turbo_plan* handle = plan.get();
  plans_.emplace(handle, std::move(plan));
  return handle;
}

void Pack::run(turbo_plan* plan, turbo_step_table* table) {
  const auto known = tables_.find(table);
  if (!plans_.count(plan) || known == tables_.end()) throw Failure(TURBO_INVALID_ARGUMENT, "run: the plan or step table is not one of this pack");
  run_plan(*plan, *known->second, team(), *kernels_);
}

void Pack::plan_buffer(turbo_plan* plan, uint32_t buffer, turbo_view& view) const {
  if (!plans_.count(plan)) throw Failure(TURBO_INVALID_ARGUMENT, "plan_buffer: the plan is not one of this pack");
  if (buffer >= plan->buffers.size() || plan->readable[buffer] == TURBO_NO_BUFFER)
    throw Failure(TURBO_INVALID_ARGUMENT, "plan '" + plan->name + "': buffer " + std::to_string(buffer) + " is neither kept nor an input",
                  "set keep on the buffer");
  const turbo_buffer& b = plan->buffers[buffer];
  const uint64_t rows = b.rows == TURBO_ROWS_LOGIT ? plan->max_logit_rows : plan->max_rows;
  view = {};
  view.struct_size = sizeof view;
  view.type = TURBO_TYPE_F32;
  view.data = plan->row(plan->readable[buffer], 0);
  view.bytes = rows * b.width * sizeof(float);
  view.rank = 2;
  view.memory = TURBO_MEMORY_HOST;
  view.device = -1;
  view.shape[0] = rows;
  view.shape[1] = b.width;
  view.stride[0] = b.width * sizeof(float);
  view.stride[1] = sizeof(float);
}

}  // namespace turbo::arch_cpu
