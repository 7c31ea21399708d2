// What the checks of programs and step tables must know of a pack's handles.
#pragma once

#include <turbo/abi/draft/arch_pack.h>

#include <optional>
#include <string_view>

namespace turbo::pack {

struct WeightFacts {
  std::string_view name;
  uint64_t rows = 0, cols = 0;
  bool is_vector() const { return rows == 1; }
};

struct PoolFacts {
  turbo_kv_pool_desc desc{};
  bool any_one_form = false, any_two_form = false;  // parts whose open form is the only one; parts with two
  uint32_t sinks = 0;                               // most of all parts of two forms

  uint32_t n_blocks() const { return desc.n_blocks; }
  uint32_t n_open_blocks() const { return any_two_form ? desc.n_open_blocks : 0; }
};

/// Nothing: the handle is not one of this pack.
class Facts {
 public:
  virtual ~Facts() = default;
  virtual std::optional<WeightFacts> weight(const turbo_weight* weight) const = 0;
  virtual std::optional<PoolFacts> pool(const turbo_kv_pool* pool) const = 0;
};

}  // namespace turbo::pack
