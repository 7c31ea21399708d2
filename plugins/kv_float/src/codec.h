// kv_codec of plain floats. One form only: open rows are final. A block of one layer and side is
// [kv_head][64 rows][pitch bytes], pitch = row bytes rounded up to 64; the padding is never read or written.
// Stateless after construction: every call may run on any thread on disjoint ranges.
#pragma once

#include <turbo/abi/draft/kv_codec.h>
#include <turbo/plugin.hpp>

#include "kernels.h"

namespace turbo::kv_float {

class Codec {
 public:
  /// Throws Failure when TURBO_CPU_ISA cannot be met.
  Codec(const Host& host, Element element);

  static void probe(const Host&, const turbo_probe_facts&, Probe& answer);
  static const void* interface(std::string_view id);

  void layout(const turbo_kv_shape& shape, turbo_kv_layout& layout) const;
  uint64_t pitch(const turbo_kv_shape& shape) const;
  uint64_t head_bytes(const turbo_kv_shape& shape) const { return pitch(shape) * TURBO_KV_BLOCK; }
  uint32_t element_bytes() const { return element_ == Element::f32 ? 4 : 2; }
  Element element() const { return element_; }
  const Kernels& kernels() const { return *kernels_; }

 private:
  Element element_;
  const Kernels* kernels_;
};

struct CodecF32 : Codec { explicit CodecF32(const Host& host) : Codec(host, Element::f32) {} };
struct CodecF16 : Codec { explicit CodecF16(const Host& host) : Codec(host, Element::f16) {} };
struct CodecBf16 : Codec { explicit CodecBf16(const Host& host) : Codec(host, Element::bf16) {} };

}  // namespace turbo::kv_float
