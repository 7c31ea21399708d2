// A format and a codec that take whatever they are told to take, by doing the pack's plain steps inside one call: what is
// fused must have the bits of what is not, so any difference is the lowering's fault.
#pragma once

#include <turbo/kernel/half.h>

#include "reference.h"

namespace turbo::test {

using namespace turbo::arch_rdna2;

class Whole : public Components {
 public:
  struct Takes { bool norm = true, bias = true, several = true, add = true, gate = true, prologue = true, append = true, attend = true, bytes = true, rows = true; };

  Whole(const turbo_device& device, Takes takes) : takes(takes), ops_(device), plain_(device) {}

  Format format(uint32_t type) const override {
    const Format plain = plain_.format(type);
    static const turbo_weight_format_device table = {
        sizeof table, 0,
        [](void* self, const turbo_device_matmul* args, turbo_error* error) -> turbo_status {
          return of(self).good(*args) ? TURBO_OK : fill_error(error, TURBO_UNSUPPORTED, "not taken");
        },
        [](void* self, const turbo_device_matmul* args) { return of(self).workspace(*args); },
        [](void* self, turbo_stream*, const turbo_device_matmul* args, turbo_error* error) -> turbo_status {
          return guarded(error, [&] { of(self).matmul(*args); });
        },
        [](void* self, const turbo_device_gather* args, turbo_error* error) -> turbo_status {
          return args->out_q8.rows && !of(self).takes.bytes ? fill_error(error, TURBO_UNSUPPORTED, "not taken") : TURBO_OK;
        },
        [](void* self, turbo_stream*, const turbo_device_gather* args, turbo_error* error) -> turbo_status {
          return guarded(error, [&] {
            of(self).plain_.gather(*args);
            mark(args->out_q8, args->dst, args->out_norm);
          });
        }};
    return {plain.host, &table, const_cast<Whole*>(this)};
  }

  Codec codec(uint32_t side, uint32_t layer) const override {
    const Codec plain = plain_.codec(side, layer);
    static const turbo_kv_codec_device table = {
        sizeof table, 0,
        [](void* self, turbo_stream*, const turbo_device_kv* kv, const turbo_device_table* t, uint32_t max_rows, const float* rows, uint64_t stride,
           turbo_error* error) -> turbo_status { return guarded(error, [&] { of(self).plain_.append(*kv, *t, max_rows, rows, stride); }); },
        nullptr,
        [](void* self, turbo_stream*, const turbo_device_kv* kv, uint32_t n, int32_t src, uint32_t src_row, int32_t dst, uint32_t dst_row,
           turbo_error* error) -> turbo_status {
          return guarded(error, [&] {
            ++of(self).n_moves;
            of(self).plain_.move_row(kv, n, src, src_row, dst, dst_row);
          });
        },
        [](void* self, const turbo_device_attend* args, uint64_t, turbo_error* error) -> turbo_status {
          return of(self).good(*args) ? TURBO_OK : fill_error(error, TURBO_UNSUPPORTED, "not taken");
        },
        [](void* self, const turbo_device_attend* args, uint64_t) { return of(self).layout(*args).bytes; },
        [](void* self, turbo_stream*, const turbo_device_attend* args, uint64_t, turbo_error* error) -> turbo_status {
          return guarded(error, [&] { of(self).attend(*args); });
        },
        [](void* self, turbo_stream*, const turbo_device_attend* args, uint32_t begin, uint32_t n, float* scores, uint64_t stride,
           turbo_error* error) -> turbo_status { return guarded(error, [&] { of(self).plain_.scores(*args, begin, n, scores, stride); }); },
        [](void* self, turbo_stream*, const turbo_device_attend* args, uint32_t begin, uint32_t n, const float* weights, uint64_t weight_stride,
           float* partials, uint64_t partial_stride, turbo_error* error) -> turbo_status {
          return guarded(error, [&] { of(self).plain_.accumulate(*args, begin, n, weights, weight_stride, partials, partial_stride); });
        }};
    return {plain.host, &table, const_cast<Whole*>(this), 7};
  }

  Takes takes;
  mutable uint32_t n_matmuls = 0, n_attends = 0, n_moves = 0, n_bytes = 0, n_chosen = 0;
  /// Of these calls, counted from 1, one gives other results and one fails: faults of what is recorded.
  uint32_t spoil_matmul = 0, fail_matmul = 0;

 private:
  static const Whole& of(void* self) { return *static_cast<const Whole*>(self); }
  static uint64_t rounded(uint64_t n) { return (n + 63) / 64 * 64; }

  // In place of bytes stands what they would be made of, noted when the writer is enqueued.
  struct Mark {
    const float *x, *norm;
  };
  static void mark(const turbo_device_q8& q8, const float* x, const float* norm) {
    if (q8.rows) *reinterpret_cast<Mark*>(q8.base) = {x, norm};
  }

  bool good(const turbo_device_matmul& a) const {
    if (!takes.bytes && (a.x_q8.rows || a.out_q8.rows)) return false;
    if (!takes.rows && a.x_rows) return false;
    const bool several = a.n_matrices > 1 && a.fuse == TURBO_FUSE_NONE, gate = a.fuse == TURBO_FUSE_SILU || a.fuse == TURBO_FUSE_GELU;
    bool bias = false;
    for (uint32_t i = 0; i < a.n_matrices; ++i) bias |= a.bias[i] != nullptr;
    return (takes.norm || !a.norm) && (takes.bias || !bias) && (takes.several || !several) && (takes.gate || !gate) &&
           (takes.add || a.fuse != TURBO_FUSE_ADD);
  }
  static uint64_t workspace(const turbo_device_matmul& a) {
    uint64_t floats = ((a.norm ? 1 : 0) + (a.x_rows ? 1 : 0)) * (a.max_rows * rounded(a.cols));
    if (a.fuse != TURBO_FUSE_NONE)
      for (uint32_t i = 0; i < a.n_matrices; ++i) floats += a.max_rows * rounded(a.matrices[i]->rows);
    return floats * sizeof(float);
  }

  void matmul(const turbo_device_matmul& a) const {
    ++n_matmuls;
    if (n_matmuls == fail_matmul) throw Failure(TURBO_INTERNAL, "a call that cannot be recorded");
    float* next = static_cast<float*>(a.workspace);
    turbo_device_matmul one = a;
    one.n_matrices = 1;
    one.fuse = TURBO_FUSE_NONE;
    one.norm = nullptr;
    one.bias[0] = nullptr;
    one.x_rows = nullptr;
    one.x_q8 = one.out_q8 = {};
    if (a.x_q8.rows) {
      const Mark made = *reinterpret_cast<const Mark*>(a.x_q8.base);
      if (made.x != a.x || made.norm != a.norm) throw Failure(TURBO_INTERNAL, "bytes of another value");
      ++n_bytes;
    }
    mark(a.out_q8, a.out[0], a.out_norm);
    if (a.x_rows) {
      ++n_chosen;
      one.x = next;
      one.x_stride = rounded(a.cols);
      ops_.element({a.n_rows, a.x_rows, a.x, nullptr, next, a.x_stride, 0, one.x_stride, a.cols, 0, kCopy, 0}, a.max_rows);
      next += a.max_rows * one.x_stride;
    }
    if (a.norm) {
      const float* const from = one.x;
      const uint64_t from_stride = one.x_stride;
      one.x = next;
      one.x_stride = rounded(a.cols);
      ops_.norm({a.n_rows, from, a.norm, next, from_stride, one.x_stride, static_cast<uint32_t>(a.cols), 1, a.eps, 0}, a.max_rows);
      next += a.max_rows * one.x_stride;
    }
    const float* parts[2] = {};
    uint64_t strides[2] = {};
    for (uint32_t i = 0; i < a.n_matrices; ++i) {
      one.matrices[0] = a.matrices[i];
      const uint64_t rows = a.matrices[i]->rows;
      if (a.fuse != TURBO_FUSE_NONE) {
        one.out[0] = next;
        one.out_stride[0] = rounded(rows);
        parts[i] = next;
        strides[i] = one.out_stride[0];
        next += a.max_rows * one.out_stride[0];
      } else {
        one.out[0] = a.out[i];
        one.out_stride[0] = a.out_stride[i];
      }
      plain_.matmul(one);
      if (a.bias[i])
        ops_.element({a.n_rows, nullptr, one.out[0], a.bias[i], one.out[0], one.out_stride[0], 0, one.out_stride[0], rows, 0, kAdd, 0}, a.max_rows);
    }
    const uint64_t width = a.matrices[0]->rows;
    if (a.fuse == TURBO_FUSE_ADD)
      ops_.element({a.n_rows, nullptr, a.residual, parts[0], a.out[0], a.residual_stride, strides[0], a.out_stride[0], width, 0, kAdd, 0}, a.max_rows);
    else if (a.fuse != TURBO_FUSE_NONE)
      ops_.element({a.n_rows, nullptr, parts[0], parts[1], a.out[0], strides[0], strides[1], a.out_stride[0], width, 0,
                    a.fuse == TURBO_FUSE_SILU ? kSilu : kGelu, 0},
                   a.max_rows);
    if (n_matmuls == spoil_matmul)
      ops_.element({a.n_rows, nullptr, a.out[0], a.out[0], a.out[0], a.out_stride[0], a.out_stride[0], a.out_stride[0], width, 0, kAdd, 0}, a.max_rows);
  }

  bool good(const turbo_device_attend& a) const {
    const bool prologue = a.q_norm || a.k_norm || a.rope_dims;
    return takes.attend && (takes.bytes || !a.out_q8.rows) && (takes.append || !a.k_rows) && (takes.prologue || !prologue);
  }
  struct Layout { uint64_t q, k, partials, state, bytes, score_stride, partial_stride, q_stride, k_stride; };  // scores lie at 0
  static Layout layout(const turbo_device_attend& a) {
    Layout l{};
    const uint64_t rows = uint64_t{a.max_rows} * a.n_heads;
    l.score_stride = uint64_t{a.max_chunks} * TURBO_DEVICE_CHUNK;
    l.partial_stride = rounded(a.v.head_dim + 2);
    l.q_stride = rounded(uint64_t{a.n_heads} * a.k.head_dim);
    l.k_stride = rounded(uint64_t{a.k.n_kv_heads} * a.k.head_dim);
    l.q = rows * l.score_stride * 4;
    l.k = l.q + a.max_rows * l.q_stride * 4;
    l.partials = l.k + a.max_rows * l.k_stride * 4;
    l.state = l.partials + rows * a.max_chunks * l.partial_stride * 4;
    l.bytes = l.state + rows * (2 + a.v.head_dim) * 4;
    return l;
  }

  // Rows of heads, normed and turned into `to`.
  void prepare(const turbo_device_attend& a, const float* from, uint64_t stride, uint32_t n_heads, const float* norm, float* to, uint64_t to_stride) const {
    const uint64_t width = uint64_t{n_heads} * a.k.head_dim;
    ops_.element({a.table.counts, nullptr, from, nullptr, to, stride, 0, to_stride, width, 0, kCopy, 0}, a.max_rows);
    if (norm) ops_.norm({a.table.counts, to, norm, to, to_stride, to_stride, a.k.head_dim, n_heads, a.eps, 0}, a.max_rows);
    if (a.rope_dims)
      ops_.rope({a.table.counts, a.table.position, a.rope_frequencies, to, to_stride, n_heads, a.k.head_dim, a.rope_dims, a.rope_style, a.rope_magnitude, 0},
                a.max_rows);
  }

  void attend(const turbo_device_attend& a) const {
    ++n_attends;
    mark(a.out_q8, a.out, nullptr);
    const Layout l = layout(a);
    const auto at = [&](uint64_t offset) { return reinterpret_cast<float*>(static_cast<uint8_t*>(a.workspace) + offset); };
    turbo_device_attend one = a;
    prepare(a, a.q, a.q_stride, a.n_heads, a.q_norm, at(l.q), l.q_stride);
    one.q = at(l.q);
    one.q_stride = l.q_stride;
    if (a.k_rows) {
      prepare(a, a.k_rows, a.k_stride, a.k.n_kv_heads, a.k_norm, at(l.k), l.k_stride);
      plain_.append(a.k, a.table, a.max_rows, at(l.k), l.k_stride);
      plain_.append(a.v, a.table, a.max_rows, a.v_rows, a.v_stride);
    }
    const WindowArgs window{a.table, a.n_heads, a.v.head_dim, 0, a.max_chunks, a.max_chunks, 0, at(0), at(l.partials), at(l.state), a.out,
                            l.score_stride, l.partial_stride, a.out_stride};
    plain_.scores(one, 0, a.max_chunks, window.scores, l.score_stride);
    ops_.softmax(window, a.max_rows);
    plain_.accumulate(one, 0, a.max_chunks, window.scores, l.score_stride, window.partials, l.partial_stride);
    ops_.merge(window, a.max_rows);
  }

  Ops ops_;
  Reference plain_;
};

}  // namespace turbo::test
