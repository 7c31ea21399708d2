// Row-wise ops of chain jobs. [team] Each call touches one group's slice of one row.
#include "run.h"

#include <algorithm>
#include <cmath>

namespace turbo::arch_cpu {
namespace {

// k largest, ties to the lower id; NaN counts as -inf. A min-heap of the best so far; chunks that cannot enter are
// skipped.
struct Candidate {
  float key, value;
  uint32_t id;
  bool better_than(const Candidate& other) const { return key > other.key || (key == other.key && id < other.id); }
};

void top_k(const Kernels& kernels, const float* x, uint64_t n, uint64_t k, float* ids, float* values) {
  // The outputs hold the heap (value, id); keys follow from the values.
  const auto at = [](float value, uint32_t id) { return Candidate{value == value ? value : -INFINITY, value, id}; };
  const auto get = [&](uint64_t i) {
    uint32_t id;
    std::memcpy(&id, ids + i, 4);
    return at(values[i], id);
  };
  const auto put = [&](uint64_t i, const Candidate& c) {
    values[i] = c.value;
    std::memcpy(ids + i, &c.id, 4);
  };
  const auto sift_down = [&](uint64_t i, uint64_t size, const Candidate& c) {  // worst at the root
    for (uint64_t child; (child = 2 * i + 1) < size; i = child) {
      if (child + 1 < size && get(child).better_than(get(child + 1))) ++child;
      if (!c.better_than(get(child))) break;
      put(i, get(child));
    }
    put(i, c);
  };
  for (uint64_t i = 0; i < k; ++i) put(i, at(x[i], static_cast<uint32_t>(i)));
  for (uint64_t i = k / 2; i-- > 0;) sift_down(i, k, get(i));
  for (uint64_t j = k; (j = kernels.find_above(x, j, n, get(0).key)) < n;) {
    const uint64_t end = std::min(j + 16, n);
    for (; j < end; ++j) {
      const Candidate c = at(x[j], static_cast<uint32_t>(j));
      if (c.better_than(get(0))) sift_down(0, k, c);
    }
  }
  for (uint64_t size = k; size > 1; --size) {  // heap sort: worst to the back
    const Candidate worst = get(0), last = get(size - 1);
    put(size - 1, worst);
    sift_down(0, size - 1, last);
  }
}

void rope_table(const MicroOp& op, int32_t position, float* out) {
  const uint32_t pairs = op.dims / 2;
  for (uint32_t i = 0; i < pairs; ++i) {
    const double angle = static_cast<double>(position) * static_cast<double>(op.weight->vector[i]);
    out[i] = static_cast<float>(std::cos(angle) * static_cast<double>(op.eps));
    out[pairs + i] = static_cast<float>(std::sin(angle) * static_cast<double>(op.eps));
  }
}

void kv_append(StepRun& run, const MicroOp& op, uint32_t row, uint32_t head) {
  const turbo_kv_pool& pool = *run.plan.pool;
  const StepTable& t = run.table;
  const uint32_t slot = static_cast<uint32_t>(t.slot[row]);
  const uint64_t at = static_cast<uint64_t>(t.row_seq[row]) * t.block_capacity + slot / TURBO_KV_BLOCK;
  for (uint32_t which : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V}) {
    const KvPart& part = pool.part(which, op.layer);
    uint8_t* block = pool.append_block(which, op.layer, t.block_table[at], t.open_table[at]);
    const float* src = run.plan.row(which == TURBO_KV_SIDE_K ? op.a : op.b, row);
    const turbo_status status = part.codec->append(part.self, &part.shape, block, slot % TURBO_KV_BLOCK, src, head, head + 1);
    if (status != TURBO_OK) run.fail(status, row, op.layer);
  }
}

// Prepared queries lie as [form][kv head][row][query of the head's group], so that the queries of one kv head over
// consecutive rows have one stride.
void prepare_query(StepRun& run, const MicroOp& op, uint32_t row, uint32_t head, uint32_t n_heads) {
  const turbo_kv_pool& pool = *run.plan.pool;
  const KvPart& keys = pool.part(TURBO_KV_SIDE_K, op.layer);
  const uint32_t kv_heads = pool.desc.n_kv_heads, gqa = n_heads / kv_heads, kv_head = head / gqa;
  const float* query = run.plan.row(op.a, row) + uint64_t{head} * keys.shape.head_dim;
  for (uint32_t f = 0; f < keys.n_forms(); ++f) {
    const uint64_t place = ((uint64_t{f} * kv_heads + kv_head) * run.plan.max_rows + row) * gqa + head % gqa;
    const uint32_t form = keys.one_form ? TURBO_KV_FORM_PACKED : f;
    keys.codec->prepare_query(keys.self, &keys.shape, form, query, run.plan.row(op.out, 0) + place * keys.query_stride);
  }
}

}  // namespace

void run_micro(StepRun& run, const MicroOp& op, uint32_t row, uint32_t group, uint32_t groups) {
  turbo_plan& plan = run.plan;
  const Kernels& k = run.kernels;
  const uint64_t width = op.a_width / groups, offset = width * group;
  switch (op.kind) {
    case Micro::embed: {
      const uint64_t token = static_cast<uint64_t>(run.table.token[row]);
      return op.weight->format->decode_rows(op.weight->format_self, &op.weight->matrix, token, token + 1, plan.row(op.out, row));
    }
    case Micro::rms_norm:
      return k.rms_norm(plan.row(op.a, row) + offset, op.weight->vector.data(), plan.row(op.out, row) + offset, width, op.eps);
    case Micro::add: return k.add(plan.row(op.a, row), plan.row(op.b, row), plan.row(op.out, row), op.out_width);
    case Micro::gated_act:
      return (op.choice == TURBO_ACT_SILU ? k.silu_mul : k.gelu_mul)(plan.row(op.a, row), plan.row(op.b, row), plan.row(op.out, row), op.out_width);
    case Micro::rope: {
      const float* table = plan.row(op.b, row);
      return (op.choice == TURBO_ROPE_HALVES ? k.rope_halves : k.rope_interleaved)(plan.row(op.a, row) + offset, table, table + op.dims / 2, op.dims / 2);
    }
    case Micro::rope_table: return rope_table(op, run.table.position[row], plan.row(op.out, row));
    case Micro::kv_append: return kv_append(run, op, row, group);
    case Micro::prepare_query: return prepare_query(run, op, row, group, groups);
    case Micro::prepare_activation:
      return op.weight->format->prepare_row(op.weight->format_self, op.weight->type, plan.row(op.a, row), op.a_width,
                                            plan.base(op.out) + row * plan.resources[op.out].row_bytes);
    case Micro::gather:
      std::memcpy(plan.row(op.out, row), plan.row(op.a, static_cast<uint64_t>(run.table.logit_row[row])), op.out_width * sizeof(float));
      return;
    case Micro::tap: std::memcpy(plan.row(op.out, row), plan.row(op.a, row), op.a_width * sizeof(float)); return;
    case Micro::concat:
      std::memcpy(plan.row(op.out, row), plan.row(op.a, row), op.a_width * sizeof(float));
      std::memcpy(plan.row(op.out, row) + op.a_width, plan.row(op.b, row), op.b_width * sizeof(float));
      return;
    case Micro::top_k: return top_k(k, plan.row(op.a, row), op.a_width, op.out_width, plan.row(op.out, row), plan.row(op.b, row));
  }
}

}  // namespace turbo::arch_cpu
