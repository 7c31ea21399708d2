#include <turbo/fake/pack.hpp>

#include <algorithm>

namespace turbo::fake {
namespace {

template <typename To, typename From>
To* as(From* handle) {
  return reinterpret_cast<To*>(handle);
}

}  // namespace

void Pack::device(turbo_device_info& info) {
  info.threads = 1;
  info.memory_bytes = uint64_t{1} << 30;
  std::snprintf(info.name, sizeof info.name, "fake device");
  std::snprintf(info.isa, sizeof info.isa, "none");
}

bool Pack::supports(uint32_t op_kind) const noexcept {
  return op_kind >= TURBO_OP_EMBED && op_kind <= TURBO_OP_CONCAT &&
         std::find(unsupported_ops.begin(), unsupported_ops.end(), op_kind) == unsupported_ops.end();
}

turbo_weight* Pack::weight_load(const turbo_weight_source& source) {
  ++live_weights;
  return as<turbo_weight>(new Weight{source.name ? source.name : "", source.type, source.rows, source.cols});
}
uint64_t Pack::weight_bytes(const turbo_weight* weight) const {
  const auto* w = as<const Weight>(weight);
  return w->rows * w->cols * sizeof(float);
}
void Pack::weight_free(turbo_weight* weight) {
  --live_weights;
  delete as<Weight>(weight);
}

turbo_kv_pool* Pack::kv_create(const turbo_kv_pool_desc& desc) {
  ++live_pools;
  return as<turbo_kv_pool>(new Pool{desc});
}
void Pack::kv_free(turbo_kv_pool* pool) {
  --live_pools;
  delete as<Pool>(pool);
}

turbo_step_table* Pack::table_create(const turbo_step_caps& caps) {
  turbo_step_table* table = ArchPack::table_create(caps);
  ++live_tables;
  return table;
}
void Pack::table_free(turbo_step_table* table) {
  --live_tables;
  ArchPack::table_free(table);
}

turbo_plan* Pack::compile(const turbo_program& program) {
  auto plan = std::make_unique<Plan>();
  plan->name = program.name ? program.name : "";
  plan->max_rows = program.max_rows;
  plan->n_inputs = program.n_inputs;
  for (uint32_t i = 0; i < program.n_ops; ++i) {
    const turbo_op& op = detail::element(program.ops, i);
    if (!supports(op.kind)) throw Failure(TURBO_UNSUPPORTED, "program " + plan->name + ": op " + std::to_string(op.kind) + " is not supported");
    plan->ops.push_back(op.kind);
  }
  for (uint32_t i = 0; i < program.n_buffers; ++i) {
    const turbo_buffer& buffer = detail::element(program.buffers, i);
    plan->widths.push_back(buffer.width);
    plan->buffer_names.emplace_back(buffer.name ? buffer.name : "");
    plan->buffers.emplace_back(buffer.width * program.max_rows);
  }
  compiled.push_back(plan->name);
  ++live_plans;
  return as<turbo_plan>(plan.release());
}
uint64_t Pack::plan_bytes(const turbo_plan* plan) const {
  uint64_t bytes = 0;
  for (const auto& buffer : as<const Plan>(plan)->buffers) bytes += buffer.size() * sizeof(float);
  return bytes;
}
void Pack::plan_free(turbo_plan* plan) {
  --live_plans;
  delete as<Plan>(plan);
}

void Pack::run(turbo_plan* plan, turbo_step_table& table) {
  auto& p = *as<Plan>(plan);
  if (table.n_rows > p.max_rows || table.n_rows > table.row_capacity)
    throw Failure(TURBO_INVALID_ARGUMENT, "run " + p.name + ": more rows than the plan has");
  runs.push_back({p.name, {table.token, table.token + table.n_rows}, {table.position, table.position + table.n_rows}});
  if (on_run) on_run(p, table);
}

void Pack::plan_buffer(turbo_plan* plan, uint32_t buffer, turbo_view& view) {
  auto& p = *as<Plan>(plan);
  if (buffer >= p.buffers.size()) throw Failure(TURBO_NOT_FOUND, "plan " + p.name + ": no buffer " + std::to_string(buffer));
  view.type = TURBO_TYPE_F32;
  view.data = p.buffers[buffer].data();
  view.bytes = p.buffers[buffer].size() * sizeof(float);
  view.rank = 2;
  view.memory = TURBO_MEMORY_HOST;
  view.device = -1;
  view.shape[0] = p.max_rows;
  view.shape[1] = p.widths[buffer];
  view.stride[0] = p.widths[buffer] * sizeof(float);
  view.stride[1] = sizeof(float);
}

}  // namespace turbo::fake
