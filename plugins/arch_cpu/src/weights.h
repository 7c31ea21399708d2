// Weights of the pack: matrices in the packed form of their weight format, vectors as plain f32.
// [load] to create and free; the fields are constant afterwards and read by the team.
#pragma once

#include <turbo/abi/draft/arch_pack.h>

#include "memory.h"
#include "team.h"

#include <string>
#include <vector>

struct turbo_weight {
  std::string name;
  uint64_t rows = 0, cols = 0;
  uint32_t type = 0;
  bool in_place = false;

  // vectors (rows == 1)
  std::vector<float> vector;

  // matrices
  const turbo_weight_format* format = nullptr;
  void* format_self = nullptr;
  turbo_matrix matrix{};
  uint32_t tile = 1;  // outputs are computed in multiples of it
  std::string activation_id;
  uint64_t activation_bytes = 0;
  turbo::arch_cpu::Memory memory;

  bool is_vector() const { return rows == 1; }
  uint64_t bytes() const { return is_vector() ? vector.size() * sizeof(float) : in_place ? 0 : matrix.packed_bytes; }
};

namespace turbo::arch_cpu {

/// Where weight formats come from: the host's registry, or a fixed one in the self-test.
struct FormatSource {
  void* ctx = nullptr;
  turbo_status (*find)(void* ctx, uint32_t type, const turbo_weight_format** format, void** self, turbo_error* error) = nullptr;
};

/// Throws Failure: unknown type, sizes that do not fit, corrupt data, no memory. Repacks over the whole team.
turbo_weight* load_weight(const turbo_weight_source& source, const FormatSource& formats, const turbo_host_alloc* alloc, ThreadTeam& team);

}  // namespace turbo::arch_cpu
