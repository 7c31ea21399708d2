// Minimal arch pack: one thread, plans walked op by op. Knows embed, rms_norm, matmul, add, gated_act (silu) and
// gather_rows; refuses the rest by name when a program is compiled, so `run` cannot meet what it does not know.
// To make it run a whole model add rope, the KV pool, kv_append and attend.
#include <turbo/arch_pack.hpp>
#include <turbo/kernel/lanes.h>

#include <cmath>

namespace {

struct Weight {
  turbo_matrix matrix{};
  const turbo_weight_format* format = nullptr;
  void* format_self = nullptr;
  std::vector<std::byte> packed;
  std::vector<float> vector;  // rows == 1: decoded once (norms, biases)
};

struct Plan {
  struct Buffer { uint64_t width; uint32_t rows; std::vector<float> data; };
  uint32_t max_rows = 0, max_logit_rows = 0;
  std::vector<Buffer> buffers;
  std::vector<turbo_op> ops;
  std::vector<std::byte> activation;  // prepared rows of one matmul
};

const Weight& weight_of(const turbo_weight* handle) { return *reinterpret_cast<const Weight*>(handle); }

[[noreturn]] void bad(const std::string& what) { throw turbo::Failure(TURBO_INVALID_ARGUMENT, what); }

class MyPack : public turbo::ArchPack<MyPack> {
 public:
  explicit MyPack(const turbo::Host& host) : registry_(host.service<turbo_host_registry>(TURBO_HOST_REGISTRY_DRAFT)) {
    if (!registry_) throw turbo::Failure(TURBO_UNSUPPORTED, "arch pack: the host has no registry of weight formats");
  }

  void device(turbo_device_info& info) override {
    info.threads = 1;
    info.memory_bytes = uint64_t{1} << 32;
    std::snprintf(info.name, sizeof info.name, "one thread of this machine");
    std::snprintf(info.isa, sizeof info.isa, "portable");
  }
  bool supports(uint32_t op) const noexcept override {
    return op == TURBO_OP_EMBED || op == TURBO_OP_RMS_NORM || op == TURBO_OP_MATMUL || op == TURBO_OP_ADD ||
           op == TURBO_OP_GATED_ACT || op == TURBO_OP_GATHER_ROWS;
  }
  void self_test() override {
    const float x[4] = {1, 2, 3, 4};
    if (turbo_dot_f32(x, x, 4) != 30) throw turbo::Failure(TURBO_INTERNAL, "self-test: 1+4+9+16 is not 30 here");
  }

  turbo_weight* weight_load(const turbo_weight_source& source) override {
    auto weight = std::make_unique<Weight>();
    turbo_error error{};
    error.struct_size = sizeof error;
    const auto must = [&](turbo_status status) {
      if (status != TURBO_OK) throw turbo::Failure(status, std::string(source.name) + ": " + error.message, error.hint);
    };
    must(registry_->weight_format(registry_->ctx, source.type, &weight->format, &weight->format_self, &error));
    uint64_t bytes = 0, alignment = 0;
    uint32_t tile = 1;
    must(weight->format->packed_size(weight->format_self, source.type, source.rows, source.cols, &bytes, &alignment, &tile, &error));
    weight->matrix = {sizeof(turbo_matrix), source.type, source.rows, source.cols, source.data, source.bytes};
    if (bytes > 0) {
      weight->packed.resize(bytes + alignment);
      auto address = reinterpret_cast<uintptr_t>(weight->packed.data());
      address = (address + alignment - 1) / alignment * alignment;
      weight->matrix.packed = reinterpret_cast<void*>(address);
      weight->matrix.packed_bytes = bytes;
      must(weight->format->repack(weight->format_self, source.type, source.rows, source.cols, source.data, source.bytes,
                                  reinterpret_cast<void*>(address), 0, source.rows, &error));
    }
    if (source.rows == 1) {
      weight->vector.resize(source.cols);
      weight->format->decode_rows(weight->format_self, &weight->matrix, 0, 1, weight->vector.data());
    }
    return reinterpret_cast<turbo_weight*>(weight.release());
  }
  uint64_t weight_bytes(const turbo_weight* w) const override { return weight_of(w).packed.size() + weight_of(w).vector.size() * sizeof(float); }
  bool weight_in_place(const turbo_weight* w) const override { return weight_of(w).packed.empty(); }
  void weight_free(turbo_weight* w) override { delete reinterpret_cast<Weight*>(w); }

  turbo_plan* compile(const turbo_program& program) override {
    auto plan = std::make_unique<Plan>();
    plan->max_rows = program.max_rows;
    plan->max_logit_rows = program.max_logit_rows;
    for (uint32_t i = 0; i < program.n_buffers; ++i) {
      const turbo_buffer& b = turbo::detail::element(program.buffers, i);
      const uint64_t rows = b.rows == TURBO_ROWS_LOGIT ? program.max_logit_rows : program.max_rows;
      if (b.width > (uint64_t{1} << 31) || rows > (uint64_t{1} << 20)) bad("program: buffer too large");
      plan->buffers.push_back({b.width, b.rows, std::vector<float>(rows * b.width)});
    }
    for (uint32_t i = 0; i < program.n_ops; ++i) {
      const turbo_op& op = turbo::detail::element(program.ops, i);
      if (!supports(op.kind)) throw turbo::Failure(TURBO_UNSUPPORTED, "program: op " + std::to_string(op.kind) + " is not supported");
      check(*plan, op);
      plan->ops.push_back(op);
    }
    return reinterpret_cast<turbo_plan*>(plan.release());
  }
  uint64_t plan_bytes(const turbo_plan* handle) const override {
    const auto& plan = *reinterpret_cast<const Plan*>(handle);
    uint64_t bytes = plan.activation.size();
    for (const auto& buffer : plan.buffers) bytes += buffer.data.size() * sizeof(float);
    return bytes;
  }
  void plan_free(turbo_plan* plan) override { delete reinterpret_cast<Plan*>(plan); }

  void run(turbo_plan* handle, turbo_step_table& table) override {
    auto& plan = *reinterpret_cast<Plan*>(handle);
    if (table.n_rows > plan.max_rows || table.n_logit_rows > plan.max_logit_rows) bad("run: more rows than the plan has");
    for (const turbo_op& op : plan.ops) run_op(plan, table, op);
  }
  void plan_buffer(turbo_plan* handle, uint32_t buffer, turbo_view& view) override {
    auto& plan = *reinterpret_cast<Plan*>(handle);
    if (buffer >= plan.buffers.size()) bad("plan: no such buffer");
    auto& b = plan.buffers[buffer];
    view.type = TURBO_TYPE_F32;
    view.data = b.data.data();
    view.bytes = b.data.size() * sizeof(float);
    view.rank = 2;
    view.device = -1;
    view.shape[0] = b.width ? b.data.size() / b.width : 0;
    view.shape[1] = b.width;
    view.stride[0] = b.width * sizeof(float);
    view.stride[1] = sizeof(float);
  }

 private:
  // Everything run_op relies on; a plan that passes needs no further checks.
  static void check(const Plan& plan, const turbo_op& op) {
    const auto width = [&](uint32_t id) {
      if (id >= plan.buffers.size()) bad("program: op " + std::to_string(op.kind) + " names a buffer that is not there");
      return plan.buffers[id].width;
    };
    const auto vector = [&](const turbo_weight* w, uint64_t n) {
      if (!w || weight_of(w).vector.size() != n) bad("program: op " + std::to_string(op.kind) + " wants a vector of " + std::to_string(n));
    };
    const auto same_rows = [&](uint32_t a, uint32_t b) {
      if (plan.buffers[a].rows != plan.buffers[b].rows) bad("program: op " + std::to_string(op.kind) + " mixes step and logit rows");
    };
    bool ok = true;
    if (op.kind == TURBO_OP_EMBED) {
      const auto& o = op.u.embed;
      ok = o.table && weight_of(o.table).matrix.cols == width(o.out) && plan.buffers[o.out].rows == TURBO_ROWS_STEP;
    } else if (op.kind == TURBO_OP_RMS_NORM) {
      const auto& o = op.u.rms_norm;
      ok = o.groups > 0 && width(o.in) == width(o.out) && width(o.in) % o.groups == 0;
      if (ok) vector(o.weight, width(o.in) / o.groups), same_rows(o.in, o.out);
    } else if (op.kind == TURBO_OP_MATMUL) {
      const auto& o = op.u.matmul;
      ok = o.weight && weight_of(o.weight).matrix.cols == width(o.in) && weight_of(o.weight).matrix.rows == width(o.out) && o.in != o.out;
      if (ok) same_rows(o.in, o.out);
      if (ok && o.bias) vector(o.bias, width(o.out));
    } else if (op.kind == TURBO_OP_ADD) {
      const auto& o = op.u.add;
      ok = width(o.a) == width(o.b) && width(o.a) == width(o.out);
      if (ok) same_rows(o.a, o.b), same_rows(o.a, o.out);
    } else if (op.kind == TURBO_OP_GATED_ACT) {
      const auto& o = op.u.gated_act;
      ok = width(o.gate) == width(o.up) && width(o.gate) == width(o.out) && o.act == TURBO_ACT_SILU;
      if (ok) same_rows(o.gate, o.up), same_rows(o.gate, o.out);
    } else if (op.kind == TURBO_OP_GATHER_ROWS) {
      const auto& o = op.u.gather_rows;
      ok = width(o.in) == width(o.out) && plan.buffers[o.in].rows == TURBO_ROWS_STEP && plan.buffers[o.out].rows == TURBO_ROWS_LOGIT;
    }
    if (!ok) bad("program: op " + std::to_string(op.kind) + " has shapes that do not fit");
  }

  static void run_op(Plan& plan, const turbo_step_table& table, const turbo_op& op) {
    const auto row = [&](uint32_t id, uint32_t r) { return plan.buffers[id].data.data() + r * plan.buffers[id].width; };
    const auto rows = [&](uint32_t id) { return plan.buffers[id].rows == TURBO_ROWS_LOGIT ? table.n_logit_rows : table.n_rows; };
    if (op.kind == TURBO_OP_EMBED) {
      const Weight& w = weight_of(op.u.embed.table);
      for (uint32_t r = 0; r < table.n_rows; ++r) {
        const auto token = static_cast<uint64_t>(table.token[r]);
        if (table.token[r] < 0 || token >= w.matrix.rows) bad("run: token outside the vocabulary");
        w.format->decode_rows(w.format_self, &w.matrix, token, token + 1, row(op.u.embed.out, r));
      }
    } else if (op.kind == TURBO_OP_RMS_NORM) {
      const auto& o = op.u.rms_norm;
      const std::vector<float>& gain = weight_of(o.weight).vector;
      for (uint32_t r = 0; r < rows(o.in); ++r)
        for (uint32_t g = 0; g < o.groups; ++g) {
          const float* in = row(o.in, r) + g * gain.size();
          float* out = row(o.out, r) + g * gain.size();
          const float scale = 1.0f / std::sqrt(turbo_dot_f32(in, in, gain.size()) / static_cast<float>(gain.size()) + o.eps);
          for (size_t e = 0; e < gain.size(); ++e) out[e] = in[e] * scale * gain[e];
        }
    } else if (op.kind == TURBO_OP_MATMUL) {
      matmul(plan, op.u.matmul, rows(op.u.matmul.in));
    } else if (op.kind == TURBO_OP_ADD) {
      const auto& o = op.u.add;
      for (uint32_t r = 0; r < rows(o.a); ++r)
        for (uint64_t e = 0; e < plan.buffers[o.a].width; ++e) row(o.out, r)[e] = row(o.a, r)[e] + row(o.b, r)[e];
    } else if (op.kind == TURBO_OP_GATED_ACT) {
      const auto& o = op.u.gated_act;
      for (uint32_t r = 0; r < rows(o.gate); ++r)
        for (uint64_t e = 0; e < plan.buffers[o.gate].width; ++e) row(o.out, r)[e] = turbo_silu(row(o.gate, r)[e]) * row(o.up, r)[e];
    } else if (op.kind == TURBO_OP_GATHER_ROWS) {
      const auto& o = op.u.gather_rows;
      for (uint32_t r = 0; r < table.n_logit_rows; ++r) {
        if (table.logit_row[r] < 0 || static_cast<uint32_t>(table.logit_row[r]) >= table.n_rows) bad("run: logit row outside the step");
        std::memcpy(row(o.out, r), row(o.in, static_cast<uint32_t>(table.logit_row[r])), plan.buffers[o.in].width * sizeof(float));
      }
    }
  }

  static void matmul(Plan& plan, const turbo_op_matmul& o, uint32_t n_rows) {
    if (n_rows == 0) return;
    const Weight& w = weight_of(o.weight);
    auto& in = plan.buffers[o.in];
    auto& out = plan.buffers[o.out];
    const uint64_t stride = w.format->activation_bytes(w.format_self, w.matrix.type, w.matrix.cols);
    plan.activation.resize(std::max<size_t>(plan.activation.size(), n_rows * stride + 64));
    auto address = (reinterpret_cast<uintptr_t>(plan.activation.data()) + 63) / 64 * 64;
    auto* rows = reinterpret_cast<std::byte*>(address);
    for (uint32_t r = 0; r < n_rows; ++r)
      w.format->prepare_row(w.format_self, w.matrix.type, in.data.data() + r * in.width, in.width, rows + r * stride);
    const turbo_matmul args = {sizeof(turbo_matmul), n_rows, &w.matrix, rows, stride, out.data.data(), out.width, 0, w.matrix.rows};
    w.format->matmul(w.format_self, &args);
    if (o.bias)
      for (uint32_t r = 0; r < n_rows; ++r)
        for (uint64_t e = 0; e < out.width; ++e) out.data[r * out.width + e] += weight_of(o.bias).vector[e];
  }

  const turbo_host_registry* registry_;
};

}  // namespace

TURBO_PLUGIN("org.example.my_arch_pack", "Minimal arch pack", "0.1.0", "Example", "Apache-2.0",
             turbo::component<MyPack>(TURBO_KIND_ARCH_PACK, "my_cpu", TURBO_TIER_CPU))
