// Weights of the pack, in device memory: matrices as their format packs them, vectors as f32.
// [load] to create and free; the fields are constant afterwards.
#pragma once

#include <turbo/abi/draft/arch_pack.h>
#include <turbo/pack/facts.hpp>

#include "components.h"
#include "memory.h"

#include <memory>
#include <string>

struct turbo_weight {
  std::string name;
  uint64_t rows = 0, cols = 0;
  turbo::hip::DeviceMemory memory;
  turbo::arch_rdna2::Format format;  // matrices
  turbo_matrix matrix{};             // likewise; packed is a device address

  bool is_vector() const { return rows == 1; }
  const float* vector() const { return memory.get<const float>(); }
  uint64_t bytes() const { return memory.bytes(); }
};

namespace turbo::arch_rdna2 {

inline pack::WeightFacts facts_of(const turbo_weight& w) { return {w.name, w.rows, w.cols}; }

/// Throws Failure: unknown type, sizes that do not fit, corrupt data, no memory. Repacks on `threads` threads.
std::unique_ptr<turbo_weight> load_weight(const turbo_weight_source& source, const Components& components, hip::Device& device, Staging& staging,
                                          uint32_t threads);

}  // namespace turbo::arch_rdna2
