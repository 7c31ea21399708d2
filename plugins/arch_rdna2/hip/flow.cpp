#include "lower.h"

#include <algorithm>

namespace turbo::arch_rdna2 {
namespace {

using Buffers = std::vector<uint32_t>;

struct Touched { Buffers reads, writes; };

Touched touched(const turbo_op& op, uint32_t n_buffers) {
  switch (op.kind) {
    case TURBO_OP_EMBED: return {{}, {op.u.embed.out}};
    case TURBO_OP_RMS_NORM: return {{op.u.rms_norm.in}, {op.u.rms_norm.out}};
    case TURBO_OP_MATMUL: return {{op.u.matmul.in}, {op.u.matmul.out}};
    case TURBO_OP_ADD: return {{op.u.add.a, op.u.add.b}, {op.u.add.out}};
    case TURBO_OP_ROPE: return {{op.u.rope.inout}, {op.u.rope.inout}};
    case TURBO_OP_KV_APPEND: return {{op.u.kv_append.k, op.u.kv_append.v}, {n_buffers + op.u.kv_append.layer}};
    case TURBO_OP_ATTEND: return {{op.u.attend.q, n_buffers + op.u.attend.layer}, {op.u.attend.out}};
    case TURBO_OP_GATED_ACT: return {{op.u.gated_act.gate, op.u.gated_act.up}, {op.u.gated_act.out}};
    case TURBO_OP_GATHER_ROWS: return {{op.u.gather_rows.in}, {op.u.gather_rows.out}};
    case TURBO_OP_TAP: return {{op.u.tap.in}, {op.u.tap.out}};
    case TURBO_OP_TOP_K: return {{op.u.top_k.in}, {op.u.top_k.ids, op.u.top_k.values}};
    case TURBO_OP_CONCAT: return {{op.u.concat.a, op.u.concat.b}, {op.u.concat.out}};
  }
  return {};
}

bool contains(const Buffers& list, uint32_t x) { return std::find(list.begin(), list.end(), x) != list.end(); }

}  // namespace

std::string describe_op(const turbo_op& op, uint32_t index) {
  static const char* const names[] = {"?",      "embed",     "rms_norm",    "matmul", "add",   "rope",  "kv_append",
                                      "attend", "gated_act", "gather_rows", "tap",    "top_k", "concat"};
  const char* name = op.kind <= TURBO_OP_CONCAT ? names[op.kind] : "?";
  const auto text = [&](const std::string& more) { return "op " + std::to_string(index) + " (" + name + more + ")"; };
  switch (op.kind) {
    case TURBO_OP_EMBED: return text(" '" + op.u.embed.table->name + "'");
    case TURBO_OP_RMS_NORM: return text(" '" + op.u.rms_norm.weight->name + "'");
    case TURBO_OP_MATMUL: return text(" '" + op.u.matmul.weight->name + "'");
    case TURBO_OP_KV_APPEND: return text(" of layer " + std::to_string(op.u.kv_append.layer));
    case TURBO_OP_ATTEND: return text(" of layer " + std::to_string(op.u.attend.layer));
    default: return text("");
  }
}

Flow::Flow(const turbo_program& program) : p_(program), reads_(program.n_ops), writes_(program.n_ops), read_buffers_(program.n_ops), write_buffers_(program.n_ops), place_(program.n_ops), taken_(program.n_ops, false) {
  std::vector<uint32_t> now;  // per buffer: its value
  const uint32_t n_layers = p_.kv ? p_.kv->desc.n_layers : 0;
  for (uint32_t b = 0; b < p_.n_buffers + n_layers; ++b) {
    now.push_back(static_cast<uint32_t>(values_.size()));
    values_.push_back({b, -1, {}, false});
  }
  for (uint32_t i = 0; i < p_.n_ops; ++i) {
    const Touched t = touched(p_.ops[i], p_.n_buffers);
    place_[i] = i;
    read_buffers_[i] = t.reads;
    write_buffers_[i] = t.writes;
    for (const uint32_t b : t.reads) {
      reads_[i].push_back(now[b]);
      std::vector<uint32_t>& readers = values_[now[b]].readers;
      if (readers.empty() || readers.back() != i) readers.push_back(i);
    }
    for (const uint32_t b : t.writes) {
      now[b] = static_cast<uint32_t>(values_.size());
      writes_[i].push_back(now[b]);
      values_.push_back({b, static_cast<int>(i), {}, false});
    }
  }
  for (uint32_t b = 0; b < now.size(); ++b) values_[now[b]].visible = b >= p_.n_buffers || b < p_.n_inputs || p_.buffers[b].keep;
}

bool Flow::touches(const Buffers& a, const Buffers& b) const {
  return std::any_of(a.begin(), a.end(), [&](uint32_t x) { return contains(b, x); });
}

bool Flow::conflict(uint32_t x, uint32_t y) const {
  return touches(write_buffers_[x], read_buffers_[y]) || touches(write_buffers_[x], write_buffers_[y]) || touches(read_buffers_[x], write_buffers_[y]);
}

bool Flow::ordered(const std::vector<uint32_t>& ops, uint32_t anchor) const {
  for (const uint32_t x : ops)
    for (uint32_t y = 0; y < p_.n_ops; ++y) {
      if (contains(ops, y) || !conflict(x, y)) continue;
      if ((x < y) != (anchor < place_[y])) return false;
    }
  return true;
}

int Flow::find_anchor(const std::vector<uint32_t>& ops) const {
  for (size_t i = ops.size(); i-- > 0;)
    if (ordered(ops, ops[i])) return static_cast<int>(ops[i]);
  return -1;
}

void Flow::take(const std::vector<uint32_t>& ops, uint32_t anchor) {
  for (const uint32_t op : ops) {
    taken_[op] = true;
    place_[op] = anchor;
  }
}

bool Flow::gather_before_norm(uint32_t gather, uint32_t norm) {
  const uint32_t source = values_[reads_[norm][0]].buffer;
  if (contains(write_buffers_[gather], source)) return false;
  // The norm's input must still be there, wherever other ops have gone.
  for (uint32_t y = 0; y < p_.n_ops; ++y) {
    if (y == norm || y == gather || !contains(write_buffers_[y], source)) continue;
    if (y > norm && y < gather) return false;
    if ((y < gather) != (place_[y] < place_[gather])) return false;
  }
  read_buffers_[gather] = {source};
  reads_[gather] = reads_[norm];
  values_[reads_[norm][0]].readers.push_back(gather);
  read_buffers_[norm].clear();
  write_buffers_[norm].clear();
  taken_[norm] = true;
  return true;
}

}  // namespace turbo::arch_rdna2
