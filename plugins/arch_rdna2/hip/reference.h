// A plain f32 weight format and a plain f32 KV codec (one form), with kernels of their own. For the self-test and tests.
#pragma once

#include "components.h"
#include "ops.h"

namespace turbo::arch_rdna2 {

class Reference : public Kernels, public Components {
 public:
  explicit Reference(const turbo_device& device);
  Format format(uint32_t type) const override;
  Codec codec(uint32_t side, uint32_t layer) const override;

  // The tables' calls.
  void matmul(const turbo_device_matmul& args) const;
  void gather(const turbo_device_gather& args) const;
  void append(const turbo_device_kv& kv, const turbo_device_table& table, uint32_t max_rows, const float* rows, uint64_t stride) const;
  void move_row(const turbo_device_kv* kv, uint32_t n, int32_t src, uint32_t src_row, int32_t dst, uint32_t dst_row) const;
  void scores(const turbo_device_attend& args, uint32_t begin, uint32_t n, float* scores, uint64_t stride) const;
  void accumulate(const turbo_device_attend& args, uint32_t begin, uint32_t n, const float* weights, uint64_t weight_stride, float* partials,
                  uint64_t partial_stride) const;

 private:
  turbo_kernel *matmul_, *gather_, *append_, *move_, *scores_, *values_;
};

}  // namespace turbo::arch_rdna2
