#include "components.h"

#include "ops.h"

namespace turbo::arch_rdna2 {

const void* HostComponents::interface(void* instance, const char* id) const {
  return TURBO_HAS(registry_, interface) && registry_->interface ? registry_->interface(registry_->ctx, instance, id) : nullptr;
}

Format HostComponents::format(uint32_t type) const {
  if (!registry_) throw Failure(TURBO_UNSUPPORTED, "the host offers no weight formats");
  Format format;
  checked("", [&](turbo_error* error) { return registry_->weight_format(registry_->ctx, type, &format.host, &format.self, error); });
  format.device = static_cast<const turbo_weight_format_device*>(interface(format.self, TURBO_WEIGHT_FORMAT_DEVICE_DRAFT));
  if (!format.host || !format.device || !TURBO_HAS(format.device, gather))
    throw Failure(TURBO_UNSUPPORTED, "the weight format for GGUF type " + std::to_string(type) + " has no kernels for a device");
  return format;
}

Codec HostComponents::codec(uint32_t side, uint32_t layer) const {
  if (!registry_) throw Failure(TURBO_UNSUPPORTED, "KV pool: the host offers no KV codecs");
  Codec codec;
  checked("", [&](turbo_error* error) { return registry_->kv_codec(registry_->ctx, side, layer, &codec.host, &codec.self, error); });
  codec.device = static_cast<const turbo_kv_codec_device*>(interface(codec.self, TURBO_KV_CODEC_DEVICE_DRAFT));
  if (!codec.host || !codec.device || !TURBO_HAS(codec.device, accumulate))
    throw Failure(TURBO_UNSUPPORTED, std::string("KV pool: the codec of ") + (side == TURBO_KV_SIDE_K ? "K" : "V") + " has no kernels for a device");
  codec.fingerprint = codec.host->fingerprint(codec.self);
  return codec;
}

}  // namespace turbo::arch_rdna2
