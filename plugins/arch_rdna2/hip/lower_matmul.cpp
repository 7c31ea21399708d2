// Products: of one input in one call, with the norm before them, and with the residual or the gated activation after them.
#include "lower.h"

#include <algorithm>

namespace turbo::arch_rdna2 {
namespace {

bool same_format(const turbo_weight& a, const turbo_weight& b) { return a.format.device == b.format.device && a.format.self == b.format.self; }

bool is_row_norm(const turbo_op& op) { return op.kind == TURBO_OP_RMS_NORM && op.u.rms_norm.groups == 1; }

bool accepts(const Format& format, const turbo_device_matmul& args) {
  turbo_error error{};
  error.struct_size = sizeof error;
  const turbo_status status = format.device->check(format.self, &args, &error);
  if (status != TURBO_OK && status != TURBO_UNSUPPORTED) throw Failure(status, error.message, error.hint);
  return status == TURBO_OK;
}

}  // namespace

// All products of one value, when the first of them is met.
void Lowering::products(uint32_t op) {
  const Value& input = flow_.read(op);
  std::vector<uint32_t> members;
  for (const uint32_t reader : input.readers)
    if (flow_.is(static_cast<int>(reader), TURBO_OP_MATMUL) && !flow_.taken(reader)) members.push_back(reader);
  const std::vector<Product> made = gather_products(members);
  const bool all = members.size() == input.readers.size() && !input.visible;
  if (fuse_ && all && input.def >= 0) {
    const auto def = static_cast<uint32_t>(input.def);
    if (is_row_norm(flow_.op(def)) && try_with_norm(made, def, false)) return;
    // A norm of all rows of which only those that give logits are read.
    if (flow_.is(input.def, TURBO_OP_GATHER_ROWS)) {
      const Value& normed = flow_.read(def);
      if (normed.def >= 0 && is_row_norm(flow_.op(static_cast<uint32_t>(normed.def))) && flow_.only_for(normed, def) &&
          try_with_norm(made, static_cast<uint32_t>(normed.def), true))
        return;
    }
  }
  for (const Product& product : made) make(product);
}

std::vector<Lowering::Product> Lowering::gather_products(const std::vector<uint32_t>& members) const {
  std::vector<Product> made;
  std::vector<uint32_t> rest;
  std::vector<bool> done(flow_.n_ops(), false);
  for (const uint32_t m : members) {
    if (done[m]) continue;
    const Value& out = flow_.written(m);
    const int after = fuse_ && !out.visible && out.readers.size() == 1 ? static_cast<int>(out.readers[0]) : -1;
    const turbo_weight& weight = *flow_.op(m).u.matmul.weight;
    if (flow_.is(after, TURBO_OP_GATED_ACT)) {
      const auto act = static_cast<uint32_t>(after);
      const int gate = flow_.read(act, 0).def, up = flow_.read(act, 1).def;
      const auto good = [&](int x) {
        return x >= 0 && std::find(members.begin(), members.end(), static_cast<uint32_t>(x)) != members.end() && !done[x] &&
               flow_.only_for(flow_.written(static_cast<uint32_t>(x)), act) && same_format(*flow_.op(static_cast<uint32_t>(x)).u.matmul.weight, weight);
      };
      if (gate != up && good(gate) && good(up)) {
        made.push_back({{static_cast<uint32_t>(gate), static_cast<uint32_t>(up)}, after});
        done[gate] = done[up] = true;
        continue;
      }
    }
    if (flow_.is(after, TURBO_OP_ADD) && &flow_.read(static_cast<uint32_t>(after), 0) != &flow_.read(static_cast<uint32_t>(after), 1)) {
      made.push_back({{m}, after});
      done[m] = true;
      continue;
    }
    rest.push_back(m);
  }
  for (const uint32_t m : rest) {
    const auto fits = [&](const Product& p) {
      return fuse_ && p.after < 0 && p.matmuls.size() < TURBO_FUSED_MATRICES &&
             same_format(*flow_.op(p.matmuls[0]).u.matmul.weight, *flow_.op(m).u.matmul.weight);
    };
    const auto found = std::find_if(made.begin(), made.end(), fits);
    if (found != made.end()) found->matmuls.push_back(m);
    else made.push_back({{m}});
  }
  return made;
}

// The norm goes into the one call that reads it, or stays by itself.
bool Lowering::try_with_norm(const std::vector<Product>& products, uint32_t norm, bool elsewhere) {
  if (products.size() != 1 || flow_.taken(norm)) return false;
  Product product = products[0];
  product.norm = static_cast<int>(norm);
  product.norm_elsewhere = elsewhere;
  const Format& format = flow_.op(product.matmuls[0]).u.matmul.weight->format;
  if (!elsewhere) {
    if (try_product(product)) return true;
    product.after = -1;
    return product.matmuls.size() > 1 && try_product(product);
  }
  if (!accepts(format, product_args(product)) || !clear_of_input(product) || flow_.find_anchor(ops_of(product)) < 0) return false;
  const int gather = flow_.read(product.matmuls[0]).def;
  if (!flow_.gather_before_norm(static_cast<uint32_t>(gather), norm)) return false;
  product.gather = gather;
  if (!flow_.taken(static_cast<uint32_t>(gather)) && try_product(product)) return true;
  product.gather = -1;
  return try_product(product);
}

// The first form that the format takes.
void Lowering::make(Product product) {
  if (try_product(product)) return;
  if (product.after >= 0) {
    product.after = -1;  // by itself later
    if (try_product(product)) return;
  }
  for (const uint32_t matmul : product.matmuls)
    if (!try_product({{matmul}})) bare_product(matmul);
}

std::vector<uint32_t> Lowering::ops_of(const Product& product) const {
  std::vector<uint32_t> ops = product.matmuls;
  if (product.after >= 0) ops.push_back(static_cast<uint32_t>(product.after));
  if (product.norm >= 0 && !product.norm_elsewhere) ops.push_back(static_cast<uint32_t>(product.norm));
  if (product.gather >= 0) ops.push_back(static_cast<uint32_t>(product.gather));
  std::sort(ops.begin(), ops.end());
  return ops;
}

turbo_device_matmul Lowering::product_args(const Product& product) const {
  const turbo_op_matmul& first = flow_.op(product.matmuls[0]).u.matmul;
  turbo_device_matmul args{};
  args.struct_size = sizeof args;
  args.max_rows = max_rows(first.in);
  args.cols = first.weight->cols;
  args.x_stride = align_up(args.cols, 32);
  if (product.norm >= 0) {
    const turbo_op_rms_norm& norm = flow_.op(static_cast<uint32_t>(product.norm)).u.rms_norm;
    args.norm = norm.weight->vector();
    args.eps = norm.eps;
  }
  // Whether rows are chosen is told by the address, which is not known yet.
  if (product.gather >= 0) args.x_rows = reinterpret_cast<const int32_t*>(uintptr_t{256});
  args.n_matrices = static_cast<uint32_t>(product.matmuls.size());
  for (uint32_t i = 0; i < args.n_matrices; ++i) {
    const turbo_op_matmul& op = flow_.op(product.matmuls[i]).u.matmul;
    args.matrices[i] = &op.weight->matrix;
    args.bias[i] = op.bias ? op.bias->vector() : nullptr;
    args.out_stride[i] = align_up(op.weight->rows, 32);
  }
  if (flow_.is(product.after, TURBO_OP_ADD)) {
    args.fuse = TURBO_FUSE_ADD;
    args.residual_stride = args.out_stride[0];
  } else if (flow_.is(product.after, TURBO_OP_GATED_ACT)) {
    args.fuse = flow_.op(static_cast<uint32_t>(product.after)).u.gated_act.act == TURBO_ACT_SILU ? TURBO_FUSE_SILU : TURBO_FUSE_GELU;
  }
  return args;
}

// What the call reads: before its norm, and before its rows are gathered.
const Value& Lowering::input_of(const Product& product) const {
  if (product.gather >= 0) return flow_.read(static_cast<uint32_t>(product.gather));
  if (product.norm >= 0 && !product.norm_elsewhere) return flow_.read(static_cast<uint32_t>(product.norm));
  return flow_.read(product.matmuls[0]);
}

// What is read by all blocks of the call must not be what it writes.
bool Lowering::clear_of_input(const Product& product) const {
  const uint32_t x = input_of(product).buffer;
  if (product.after >= 0) return flow_.written(static_cast<uint32_t>(product.after)).buffer != x;
  std::vector<uint32_t> outs{x};
  for (const uint32_t matmul : product.matmuls) {
    const uint32_t out = flow_.op(matmul).u.matmul.out;
    if (std::find(outs.begin(), outs.end(), out) != outs.end()) return false;
    outs.push_back(out);
  }
  return true;
}

bool Lowering::try_product(const Product& product) {
  const turbo_op_matmul& first = flow_.op(product.matmuls[0]).u.matmul;
  const Format format = first.weight->format;
  turbo_device_matmul args = product_args(product);
  const bool bare = args.n_matrices == 1 && args.fuse == TURBO_FUSE_NONE && !args.norm && !args.bias[0] && !args.x_rows;
  if (!bare && !accepts(format, args)) return false;
  const std::vector<uint32_t> ops = ops_of(product);
  const int anchor = clear_of_input(product) ? flow_.find_anchor(ops) : -1;
  if (anchor < 0) return false;

  const Value& input = input_of(product);
  const uint32_t x = input.buffer;
  uint32_t residual = TURBO_NO_BUFFER;
  std::vector<uint32_t> reads{x}, outs;
  if (args.fuse == TURBO_FUSE_ADD) {
    const auto add = static_cast<uint32_t>(product.after);
    residual = flow_.read(add, 0).def == static_cast<int>(product.matmuls[0]) ? flow_.read(add, 1).buffer : flow_.read(add, 0).buffer;
    reads.push_back(residual);
  }
  if (product.after >= 0) outs = {flow_.written(static_cast<uint32_t>(product.after)).buffer};
  else
    for (const uint32_t matmul : product.matmuls) outs.push_back(flow_.op(matmul).u.matmul.out);

  const uint64_t in_rows = max_rows(x);
  const std::shared_ptr<ByteLink> in = byte_end(byte_readers_, input, args.norm, in_rows, args.cols, [format, args, in_rows](const float*) {
    turbo_device_matmul with = args;
    with.x_q8.rows = in_rows;
    return accepts(format, with);
  });
  std::shared_ptr<ByteLink> out = std::make_shared<ByteLink>();
  if (outs.size() == 1) {
    const Value& value = flow_.written(product.after >= 0 ? static_cast<uint32_t>(product.after) : product.matmuls[0]);
    out = byte_end(byte_writers_, value, nullptr, args.max_rows, args.matrices[0]->rows, [format, args](const float* norm) {
      turbo_device_matmul with = args;
      with.out_q8.rows = args.max_rows;
      with.out_norm = norm;
      return accepts(format, with);
    });
  }
  const bool logit_rows = logit(first.in), chosen = product.gather >= 0;
  const auto fill = [=](const StepRun& run) {
    turbo_device_matmul now = args;
    now.n_rows = count_of(run, logit_rows);
    now.x = run.plan.row(x, 0);
    now.x_stride = run.plan.places[x].stride;
    now.x_rows = chosen ? run.table.logit_row : nullptr;
    now.x_q8 = in->bytes(run.plan);
    now.out_q8 = out->bytes(run.plan);
    now.out_norm = out->norm;
    for (size_t i = 0; i < outs.size(); ++i) {
      now.out[i] = run.plan.row(outs[i], 0);
      now.out_stride[i] = run.plan.places[outs[i]].stride;
    }
    if (residual != TURBO_NO_BUFFER) {
      now.residual = run.plan.row(residual, 0);
      now.residual_stride = run.plan.places[residual].stride;
    }
    now.workspace = run.scratch;
    return now;
  };
  n_fused_ += static_cast<uint32_t>(ops.size() - 1 + (product.norm_elsewhere ? 1 : 0));
  add_step(ops, static_cast<uint32_t>(anchor), reads, outs,
           [format, fill](const StepRun& run) {
             const turbo_device_matmul now = fill(run);
             checked("", [&](turbo_error* error) { return format.device->matmul(format.self, run.stream, &now, error); });
           },
           [format, args, in](uint32_t) {
             turbo_device_matmul with = args;
             with.x_q8.rows = in->rows;
             return format.device->workspace_bytes(format.self, &with);
           });
  return true;
}

// A format takes every product of one matrix; only its bias may be too much.
void Lowering::bare_product(uint32_t matmul) {
  const turbo_op_matmul op = flow_.op(matmul).u.matmul;
  const Format format = op.weight->format;
  turbo_device_matmul args = product_args({{matmul}});
  args.bias[0] = nullptr;
  const uint64_t workspace = format.device->workspace_bytes(format.self, &args);
  const bool logit_rows = logit(op.out);
  const uint32_t rows = max_rows(op.out);
  add_step({matmul}, matmul, {op.in}, {op.out},
           [=](const StepRun& run) {
             turbo_device_matmul now = args;
             now.n_rows = count_of(run, logit_rows);
             now.x = run.plan.row(op.in, 0);
             now.x_stride = run.plan.places[op.in].stride;
             now.out[0] = run.plan.row(op.out, 0);
             now.out_stride[0] = run.plan.places[op.out].stride;
             now.workspace = run.scratch;
             checked("", [&](turbo_error* error) { return format.device->matmul(format.self, run.stream, &now, error); });
             if (!op.bias) return;
             const uint64_t stride = run.plan.places[op.out].stride;
             run.ops.element({now.n_rows, nullptr, now.out[0], op.bias->vector(), now.out[0], stride, 0, stride, op.weight->rows, 0, kAdd, 0}, rows);
           },
           [workspace](uint32_t) { return workspace; });
}

}  // namespace turbo::arch_rdna2
