// ProgramBuilder: writes a turbo_program op by op. Used by core/model and by drafters with a network.
// Not thread-safe; the built program borrows the builder's arrays and names.
#pragma once

#include <turbo/abi/draft/program.h>

#include <deque>
#include <string>
#include <vector>

namespace turbo {

class ProgramBuilder {
 public:
  ProgramBuilder(std::string name, uint32_t max_rows, uint32_t max_logit_rows, turbo_kv_pool* kv)
      : name_(std::move(name)), max_rows_(max_rows), max_logit_rows_(max_logit_rows), kv_(kv) {}

  /// A buffer of `width` floats per row. Inputs must be added before any other buffer.
  uint32_t buffer(std::string name, uint64_t width, uint32_t rows = TURBO_ROWS_STEP, bool keep = false) {
    names_.push_back(std::move(name));
    buffers_.push_back({sizeof(turbo_buffer), rows, width, names_.back().c_str(), keep ? 1u : 0u, 0});
    return static_cast<uint32_t>(buffers_.size() - 1);
  }
  uint32_t input(std::string name, uint64_t width) {
    const uint32_t id = buffer(std::move(name), width, TURBO_ROWS_STEP, true);
    ++n_inputs_;
    return id;
  }

  void embed(const turbo_weight* table, uint32_t out) { op(TURBO_OP_EMBED).u.embed = {table, out}; }
  void rms_norm(const turbo_weight* weight, uint32_t in, uint32_t out, float eps, uint32_t groups = 1) {
    op(TURBO_OP_RMS_NORM).u.rms_norm = {weight, in, out, groups, eps};
  }
  void matmul(const turbo_weight* weight, uint32_t in, uint32_t out, const turbo_weight* bias = nullptr) {
    op(TURBO_OP_MATMUL).u.matmul = {weight, bias, in, out};
  }
  void add(uint32_t a, uint32_t b, uint32_t out) { op(TURBO_OP_ADD).u.add = {a, b, out}; }
  void rope(const turbo_op_rope& rope) { op(TURBO_OP_ROPE).u.rope = rope; }
  void kv_append(uint32_t layer, uint32_t k, uint32_t v) { op(TURBO_OP_KV_APPEND).u.kv_append = {layer, k, v}; }
  void attend(const turbo_op_attend& attend) { op(TURBO_OP_ATTEND).u.attend = attend; }
  void gated_act(uint32_t gate, uint32_t up, uint32_t out, uint32_t act) {
    op(TURBO_OP_GATED_ACT).u.gated_act = {gate, up, out, act};
  }
  void gather_rows(uint32_t in, uint32_t out) { op(TURBO_OP_GATHER_ROWS).u.gather_rows = {in, out}; }
  void tap(uint32_t in, uint32_t out) { op(TURBO_OP_TAP).u.tap = {in, out}; }
  void concat(uint32_t a, uint32_t b, uint32_t out) { op(TURBO_OP_CONCAT).u.concat = {a, b, out}; }

  /// Valid while the builder lives and is not changed.
  turbo_program program() const {
    return {sizeof(turbo_program), max_rows_, max_logit_rows_, static_cast<uint32_t>(buffers_.size()),
            static_cast<uint32_t>(ops_.size()), n_inputs_, buffers_.data(), ops_.data(), kv_, name_.c_str()};
  }

 private:
  turbo_op& op(uint32_t kind) {
    turbo_op& added = ops_.emplace_back();
    added.struct_size = sizeof(turbo_op);
    added.kind = kind;
    return added;
  }
  std::string name_;
  uint32_t max_rows_, max_logit_rows_, n_inputs_ = 0;
  turbo_kv_pool* kv_;
  std::deque<std::string> names_;
  std::vector<turbo_buffer> buffers_;
  std::vector<turbo_op> ops_;
};

}  // namespace turbo
