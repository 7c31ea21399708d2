// Formats and codecs of this tier, as the host's registry hands them out: the table of every tier and the device's own.
// [load]
#pragma once

#include <turbo/abi/draft/device.h>
#include <turbo/plugin.hpp>

namespace turbo::arch_rdna2 {

struct Format {
  const turbo_weight_format* host = nullptr;
  const turbo_weight_format_device* device = nullptr;
  void* self = nullptr;
};

struct Codec {
  const turbo_kv_codec* host = nullptr;
  const turbo_kv_codec_device* device = nullptr;
  void* self = nullptr;
  uint64_t fingerprint = 0;
};

/// Where they come from: the host, or plain ones in the self-test. Throw Failure.
class Components {
 public:
  virtual ~Components() = default;
  virtual Format format(uint32_t type) const = 0;
  virtual Codec codec(uint32_t side, uint32_t layer) const = 0;
};

class HostComponents : public Components {
 public:
  explicit HostComponents(const turbo_host_registry* registry) : registry_(registry) {}
  Format format(uint32_t type) const override;
  Codec codec(uint32_t side, uint32_t layer) const override;

 private:
  const void* interface(void* instance, const char* id) const;
  const turbo_host_registry* registry_;
};

}  // namespace turbo::arch_rdna2
