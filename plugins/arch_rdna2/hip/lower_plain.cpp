// Ops that nothing fuses, one step each; and the walk over the program.
#include "lower.h"

#include <algorithm>

namespace turbo::arch_rdna2 {

std::vector<Step> Lowering::run() {
  for (uint32_t op = 0; op < p_.n_ops; ++op) {
    if (flow_.taken(op)) continue;
    if (flow_.is(static_cast<int>(op), TURBO_OP_MATMUL)) products(op);
    else if (flow_.is(static_cast<int>(op), TURBO_OP_ATTEND)) attention(op);
  }
  for (uint32_t op = 0; op < p_.n_ops; ++op)
    if (!flow_.taken(op)) plain(op);
  if (fuse_) link_bytes();
  std::sort(steps_.begin(), steps_.end(), [](const Step& a, const Step& b) { return a.anchor < b.anchor; });
  return std::move(steps_);
}

void Lowering::add_step(std::vector<uint32_t> ops, uint32_t anchor, std::vector<uint32_t> reads, std::vector<uint32_t> writes,
                        std::function<void(const StepRun&)> enqueue, std::function<uint64_t(uint32_t)> scratch_bytes) {
  flow_.take(ops, anchor);
  Step step;
  step.what = describe_op(flow_.op(ops[0]), ops[0]);
  if (ops.size() > 1) step.what += " with " + std::to_string(ops.size() - 1) + (ops.size() > 2 ? " others" : " other");
  step.ops = std::move(ops);
  step.anchor = anchor;
  step.reads = std::move(reads);
  step.writes = std::move(writes);
  step.enqueue = std::move(enqueue);
  step.scratch_bytes = std::move(scratch_bytes);
  steps_.push_back(std::move(step));
}

void Lowering::plain_append(uint32_t op) {
  const turbo_op_kv_append o = flow_.op(op).u.kv_append;
  const turbo_kv_pool& pool = *p_.kv;
  const uint32_t rows = p_.max_rows;
  add_step({op}, op, {o.k, o.v}, {}, [o, &pool, rows](const StepRun& run) {
    for (const uint32_t side : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V}) {
      const Codec& codec = pool.part(side, o.layer).codec;
      const turbo_device_kv kv = pool.kv(side, o.layer);
      const uint32_t source = side == TURBO_KV_SIDE_K ? o.k : o.v;
      checked(side == TURBO_KV_SIDE_K ? "keys" : "values", [&](turbo_error* error) {
        return codec.device->append(codec.self, run.stream, &kv, &run.table, rows, run.plan.row(source, 0), run.plan.places[source].stride, error);
      });
    }
  });
}

void Lowering::plain(uint32_t op) {
  const turbo_op& o = flow_.op(op);
  // a, b and out of an element-wise kernel.
  const auto element = [&](uint32_t a, uint32_t b, uint32_t out, uint32_t kind, bool gathers = false) {
    const bool logit_rows = logit(out);
    const uint32_t rows = max_rows(out);
    const uint64_t width = p_.buffers[out].width, a_width = p_.buffers[a].width;
    std::vector<uint32_t> reads{a};
    if (kind != kCopy) reads.push_back(b);
    add_step({op}, op, reads, {out}, [=](const StepRun& run) {
      const auto stride = [&](uint32_t buffer) { return run.plan.places[buffer].stride; };
      run.ops.element({count_of(run, logit_rows), gathers ? run.table.logit_row : nullptr, run.plan.row(a, 0), kind == kCopy ? nullptr : run.plan.row(b, 0),
                       run.plan.row(out, 0), stride(a), kind == kCopy ? 0 : stride(b), stride(out), width, a_width, kind, 0},
                      rows);
    });
  };
  switch (o.kind) {
    case TURBO_OP_EMBED: {
      const turbo_op_embed e = o.u.embed;
      const Format format = e.table->format;
      turbo_device_gather args{};
      args.struct_size = sizeof args;
      args.max_rows = p_.max_rows;
      args.matrix = &e.table->matrix;
      const std::shared_ptr<ByteLink> link = byte_end(byte_writers_, flow_.written(op), nullptr, args.max_rows, args.matrix->cols, [=](const float* norm) {
        turbo_device_gather with = args;
        with.out_q8.rows = with.max_rows;
        with.out_norm = norm;
        turbo_error error{};
        error.struct_size = sizeof error;
        return format.device->check_gather(format.self, &with, &error) == TURBO_OK;
      });
      return add_step({op}, op, {}, {e.out}, [=](const StepRun& run) {
        turbo_device_gather now = args;
        now.ids = run.table.token;
        now.n_rows = run.table.counts;
        now.dst = run.plan.row(e.out, 0);
        now.dst_stride = run.plan.places[e.out].stride;
        now.out_q8 = link->bytes(run.plan);
        now.out_norm = link->norm;
        checked("", [&](turbo_error* error) { return format.device->gather(format.self, run.stream, &now, error); });
      });
    }
    case TURBO_OP_RMS_NORM: {
      const turbo_op_rms_norm n = o.u.rms_norm;
      const bool logit_rows = logit(n.out);
      const uint32_t rows = max_rows(n.out), width = static_cast<uint32_t>(n.weight->cols);
      return add_step({op}, op, {n.in}, {n.out}, [=](const StepRun& run) {
        run.ops.norm({count_of(run, logit_rows), run.plan.row(n.in, 0), n.weight->vector(), run.plan.row(n.out, 0), run.plan.places[n.in].stride,
                      run.plan.places[n.out].stride, width, n.groups, n.eps, 0},
                     rows);
      });
    }
    case TURBO_OP_ADD: return element(o.u.add.a, o.u.add.b, o.u.add.out, kAdd);
    case TURBO_OP_ROPE: {
      const turbo_op_rope r = o.u.rope;
      const uint32_t rows = p_.max_rows;
      return add_step({op}, op, {r.inout}, {r.inout}, [r, rows](const StepRun& run) {
        run.ops.rope({run.table.counts, run.table.position, r.frequencies->vector(), run.plan.row(r.inout, 0), run.plan.places[r.inout].stride,
                      r.n_heads, r.head_dim, r.dims, r.style, r.magnitude, 0},
                     rows);
      });
    }
    case TURBO_OP_KV_APPEND: return plain_append(op);
    case TURBO_OP_GATED_ACT: return element(o.u.gated_act.gate, o.u.gated_act.up, o.u.gated_act.out, o.u.gated_act.act == TURBO_ACT_SILU ? kSilu : kGelu);
    case TURBO_OP_GATHER_ROWS: return element(flow_.read(op).buffer, 0, o.u.gather_rows.out, kCopy, true);
    case TURBO_OP_TAP: return element(o.u.tap.in, 0, o.u.tap.out, kCopy);
    case TURBO_OP_CONCAT: return element(o.u.concat.a, o.u.concat.b, o.u.concat.out, kConcat);
    case TURBO_OP_TOP_K: {
      const turbo_op_top_k t = o.u.top_k;
      const bool logit_rows = logit(t.in);
      const uint32_t rows = max_rows(t.in), width = static_cast<uint32_t>(p_.buffers[t.in].width);
      return add_step({op}, op, {t.in}, {t.ids, t.values}, [=](const StepRun& run) {
        run.ops.top_k({count_of(run, logit_rows), run.plan.row(t.in, 0), run.plan.row(t.ids, 0), run.plan.row(t.values, 0), run.plan.places[t.in].stride,
                       run.plan.places[t.ids].stride, run.plan.places[t.values].stride, width, t.k},
                      rows);
      });
    }
    default: throw Failure(TURBO_INTERNAL, describe_op(o, op) + ": was not lowered");
  }
}

}  // namespace turbo::arch_rdna2
