// Program check for arch packs: every id, width, handle and the order of ops, before anything is lowered. [load]
#pragma once

#include <turbo/abi/draft/program.h>
#include <turbo/pack/facts.hpp>
#include <turbo/plugin.hpp>

#include <cmath>
#include <set>
#include <string>
#include <vector>

namespace turbo::pack {

/// The ops that a program may hold today.
inline bool op_known(uint32_t kind) { return kind >= TURBO_OP_EMBED && kind <= TURBO_OP_CONCAT; }

inline const char* op_name(uint32_t kind) {
  static const char* const names[] = {"?",      "embed",  "rms_norm",  "matmul",      "add", "rope", "kv_append",
                                      "attend", "gated_act", "gather_rows", "tap", "top_k", "concat"};
  return kind <= TURBO_OP_CONCAT ? names[kind] : "?";
}

namespace detail {

class ProgramChecker {
 public:
  ProgramChecker(const turbo_program& program, const Facts& facts) : p_(program), facts_(facts) {}

  void run() {
    check_header();
    for (uint32_t i = 0; i < p_.n_ops; ++i) {
      index_ = i;
      op_ = &p_.ops[i];
      if (op_->struct_size != sizeof(turbo_op)) fail("struct_size " + std::to_string(op_->struct_size));
      if (!op_known(op_->kind)) throw Failure(TURBO_UNSUPPORTED, where() + "this pack has no op " + std::to_string(op_->kind));
      check_op();
    }
  }

 private:
  static constexpr uint32_t kMaxBuffers = 1u << 14, kMaxOps = 1u << 14, kMaxRows = 65536;
  static constexpr uint64_t kMaxWidth = uint64_t{1} << 31;

  std::string where() const {
    std::string text = "program '" + std::string(p_.name ? p_.name : "") + "'";
    if (op_) text += ", op " + std::to_string(index_) + " (" + op_name(op_->kind) + ")";
    return text + ": ";
  }
  [[noreturn]] void fail(const std::string& why) const { throw Failure(TURBO_INVALID_ARGUMENT, where() + why); }
  void require(bool good, const char* why) const {
    if (!good) fail(why);
  }

  void check_header() {
    require(p_.struct_size == sizeof(turbo_program), "unknown struct_size");
    require(p_.max_rows >= 1 && p_.max_rows <= kMaxRows, "max_rows is not in 1..65536");
    require(p_.max_logit_rows <= kMaxRows, "max_logit_rows is over 65536");
    require(p_.n_buffers >= 1 && p_.n_buffers <= kMaxBuffers && p_.buffers, "no buffers or too many");
    require(p_.n_ops >= 1 && p_.n_ops <= kMaxOps && p_.ops, "no ops or too many");
    require(p_.n_inputs <= p_.n_buffers, "more inputs than buffers");
    if (p_.kv) {
      const std::optional<PoolFacts> pool = facts_.pool(p_.kv);
      require(pool.has_value(), "its KV pool is not one of this pack");
      pool_ = *pool;
    }
    written_.assign(p_.n_buffers, false);
    for (uint32_t i = 0; i < p_.n_buffers; ++i) {
      const turbo_buffer& b = p_.buffers[i];
      if (b.struct_size != sizeof(turbo_buffer) || b.rows > TURBO_ROWS_LOGIT || b.width == 0 || b.width > kMaxWidth)
        fail("buffer " + std::to_string(i) + " has an impossible shape");
      if (b.rows == TURBO_ROWS_LOGIT && p_.max_logit_rows == 0) fail("buffer " + std::to_string(i) + " has logit rows but max_logit_rows is 0");
      written_[i] = i < p_.n_inputs;
    }
  }

  const turbo_buffer& id(uint32_t buffer) const {
    if (buffer >= p_.n_buffers) fail("buffer " + std::to_string(buffer) + " of " + std::to_string(p_.n_buffers));
    return p_.buffers[buffer];
  }
  const turbo_buffer& in(uint32_t buffer) const {
    const turbo_buffer& b = id(buffer);
    if (!written_[buffer]) fail("buffer " + std::to_string(buffer) + " is read before anything wrote it");
    return b;
  }
  const turbo_buffer& out(uint32_t buffer) {
    const turbo_buffer& b = id(buffer);
    written_[buffer] = true;
    return b;
  }
  void width(const turbo_buffer& b, uint64_t want, const char* what) const {
    if (b.width != want) fail(std::string(what) + " has width " + std::to_string(b.width) + " but needs " + std::to_string(want));
  }
  void same_rows(const turbo_buffer& a, const turbo_buffer& b) const { require(a.rows == b.rows, "step rows and logit rows are mixed"); }
  WeightFacts handle(const turbo_weight* weight, const char* what) const {
    const std::optional<WeightFacts> found = weight ? facts_.weight(weight) : std::nullopt;
    if (!found) fail(std::string(what) + " is no weight of this pack");
    return *found;
  }
  WeightFacts matrix(const turbo_weight* weight) const {
    const WeightFacts w = handle(weight, "the matrix");
    if (w.is_vector()) fail("'" + std::string(w.name) + "' is a vector, not a matrix");
    return w;
  }
  WeightFacts vector(const turbo_weight* weight, uint64_t size, const char* what) const {
    const WeightFacts w = handle(weight, what);
    if (!w.is_vector() || w.cols != size)
      fail(std::string(what) + " '" + std::string(w.name) + "' is " + std::to_string(w.rows) + " x " + std::to_string(w.cols) + " but must be a vector of " + std::to_string(size));
    return w;
  }
  const PoolFacts& pool(uint32_t layer) const {
    require(p_.kv != nullptr, "the program has no KV pool");
    if (layer >= pool_.desc.n_layers) fail("layer " + std::to_string(layer) + " of " + std::to_string(pool_.desc.n_layers));
    return pool_;
  }

  void check_op() {
    switch (op_->kind) {
      case TURBO_OP_EMBED: return embed(op_->u.embed);
      case TURBO_OP_RMS_NORM: return rms_norm(op_->u.rms_norm);
      case TURBO_OP_MATMUL: return matmul(op_->u.matmul);
      case TURBO_OP_ADD: return add(op_->u.add);
      case TURBO_OP_ROPE: return rope(op_->u.rope);
      case TURBO_OP_KV_APPEND: return kv_append(op_->u.kv_append);
      case TURBO_OP_ATTEND: return attend(op_->u.attend);
      case TURBO_OP_GATED_ACT: return gated_act(op_->u.gated_act);
      case TURBO_OP_GATHER_ROWS: return gather(op_->u.gather_rows);
      case TURBO_OP_TAP: return tap(op_->u.tap);
      case TURBO_OP_TOP_K: return top_k(op_->u.top_k);
      case TURBO_OP_CONCAT: return concat(op_->u.concat);
    }
  }

  void embed(const turbo_op_embed& op) {
    const WeightFacts table = matrix(op.table);
    const turbo_buffer& o = out(op.out);
    require(o.rows == TURBO_ROWS_STEP, "out must have step rows");
    width(o, table.cols, "out");
    if (vocabulary_ && vocabulary_ != table.rows) fail("two embedding tables of different heights");
    vocabulary_ = table.rows;
  }
  void rms_norm(const turbo_op_rms_norm& op) {
    const turbo_buffer& x = in(op.in);
    const turbo_buffer& o = out(op.out);
    same_rows(x, o);
    width(o, x.width, "out");
    require(op.groups >= 1 && x.width % op.groups == 0, "the width is no multiple of groups");
    require(std::isfinite(op.eps) && op.eps >= 0, "eps must be finite and not negative");
    vector(op.weight, x.width / op.groups, "the norm weight");
  }
  void matmul(const turbo_op_matmul& op) {
    const WeightFacts w = matrix(op.weight);
    require(op.in != op.out, "in and out are the same buffer");
    const turbo_buffer& x = in(op.in);
    const turbo_buffer& o = out(op.out);
    same_rows(x, o);
    width(x, w.cols, "in");
    width(o, w.rows, "out");
    if (op.bias) vector(op.bias, w.rows, "the bias");
  }
  void add(const turbo_op_add& op) {
    const turbo_buffer& a = in(op.a);
    const turbo_buffer& b = in(op.b);
    const turbo_buffer& o = out(op.out);
    same_rows(a, b);
    same_rows(a, o);
    width(b, a.width, "b");
    width(o, a.width, "out");
  }
  void rope(const turbo_op_rope& op) {
    const turbo_buffer& x = in(op.inout);
    require(x.rows == TURBO_ROWS_STEP, "the buffer must have step rows");
    require(op.n_heads >= 1 && op.head_dim >= 1 && uint64_t{op.n_heads} * op.head_dim == x.width, "n_heads x head_dim is not the width");
    require(op.dims >= 2 && op.dims % 2 == 0 && op.dims <= op.head_dim, "dims must be even and within head_dim");
    require(op.style <= TURBO_ROPE_INTERLEAVED, "unknown style");
    require(std::isfinite(op.magnitude), "magnitude must be finite");
    vector(op.frequencies, op.dims / 2, "the frequencies");
  }
  void kv_append(const turbo_op_kv_append& op) {
    const PoolFacts& kv = pool(op.layer);
    const turbo_buffer& k = in(op.k);
    const turbo_buffer& v = in(op.v);
    require(k.rows == TURBO_ROWS_STEP && v.rows == TURBO_ROWS_STEP, "k and v must have step rows");
    width(k, uint64_t{kv.desc.n_kv_heads} * kv.desc.head_dim_k, "k");
    width(v, uint64_t{kv.desc.n_kv_heads} * kv.desc.head_dim_v, "v");
    require(appended_.insert(op.layer).second, "its layer was appended before");
  }
  void attend(const turbo_op_attend& op) {
    const PoolFacts& kv = pool(op.layer);
    require(op.q != op.out, "q and out are the same buffer");
    const turbo_buffer& q = in(op.q);
    const turbo_buffer& o = out(op.out);
    require(q.rows == TURBO_ROWS_STEP && o.rows == TURBO_ROWS_STEP, "q and out must have step rows");
    require(op.n_heads >= 1 && op.n_heads % kv.desc.n_kv_heads == 0 && op.n_heads <= 65536, "n_heads is no multiple of the KV heads");
    require(std::isfinite(op.scale), "scale must be finite");
    width(q, uint64_t{op.n_heads} * kv.desc.head_dim_k, "q");
    width(o, uint64_t{op.n_heads} * kv.desc.head_dim_v, "out");
  }
  void gated_act(const turbo_op_gated_act& op) {
    const turbo_buffer& gate = in(op.gate);
    const turbo_buffer& up = in(op.up);
    const turbo_buffer& o = out(op.out);
    same_rows(gate, up);
    same_rows(gate, o);
    width(up, gate.width, "up");
    width(o, gate.width, "out");
    require(op.act <= TURBO_ACT_GELU_TANH, "unknown activation");
  }
  void gather(const turbo_op_gather_rows& op) {
    const turbo_buffer& x = in(op.in);
    const turbo_buffer& o = out(op.out);
    require(x.rows == TURBO_ROWS_STEP && o.rows == TURBO_ROWS_LOGIT, "in must have step rows and out logit rows");
    width(o, x.width, "out");
  }
  void tap(const turbo_op_tap& op) {
    const turbo_buffer& x = in(op.in);
    require(op.in != op.out, "in and out must differ");
    const turbo_buffer& o = out(op.out);
    require(o.keep != 0, "out is not a kept buffer");
    same_rows(x, o);
    width(o, x.width, "out");
  }
  void top_k(const turbo_op_top_k& op) {
    const turbo_buffer& x = in(op.in);
    require(op.in != op.ids && op.in != op.values && op.ids != op.values, "in, ids and values must differ");
    const turbo_buffer& ids = out(op.ids);
    const turbo_buffer& values = out(op.values);
    same_rows(x, ids);
    same_rows(x, values);
    require(op.k >= 1 && op.k <= x.width, "k is not in 1..width");
    width(ids, op.k, "ids");
    width(values, op.k, "values");
  }
  void concat(const turbo_op_concat& op) {
    const turbo_buffer& a = in(op.a);
    const turbo_buffer& b = in(op.b);
    require(op.out != op.a && op.out != op.b, "out must differ from a and b");
    const turbo_buffer& o = out(op.out);
    same_rows(a, b);
    same_rows(a, o);
    width(o, a.width + b.width, "out");
  }

  const turbo_program& p_;
  const Facts& facts_;
  PoolFacts pool_;
  const turbo_op* op_ = nullptr;
  uint32_t index_ = 0;
  uint64_t vocabulary_ = 0;
  std::vector<bool> written_;
  std::set<uint32_t> appended_;
};

}  // namespace detail

/// Throws Failure naming the op. Afterwards lowering may trust the program.
inline void check_program(const turbo_program& program, const Facts& facts) { detail::ProgramChecker(program, facts).run(); }

}  // namespace turbo::pack
