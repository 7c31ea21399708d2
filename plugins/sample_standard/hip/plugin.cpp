// Sampler "standard", tier hip: a client of the arch pack's device.
#include "sampler.h"
#include "verify.h"

#include <optional>

extern "C" const turbo_code_object turbo_kernels_sample[];
extern "C" const uint32_t turbo_n_kernels_sample;

namespace turbo::sample_standard {
namespace {

class HipSampler : public Sampler<HipSampler>, public DeviceClient<HipSampler> {
 public:
  explicit HipSampler(const Host& host) : host_(host) {}

  static void probe(const Host&, const turbo_probe_facts&, Probe& answer) {
    answer.reason = "kernels for";
    for (uint32_t i = 0; i < turbo_n_kernels_sample; ++i) answer.reason += std::string(i ? ", " : " ") + turbo_kernels_sample[i].isa;
  }

  static const void* interface(std::string_view id) {
    if (const void* table = DeviceClient<HipSampler>::interface(id)) return table;
    if (const void* table = verifier_interface<HipSampler>(id)) return table;
    return Sampler<HipSampler>::interface(id);
  }

  void attach(const turbo_device& device) override {
    detach();
    const turbo_model_facts* model = host_.model();
    verifier_.emplace(&device);
    device_.emplace(&device, model ? model->vocab_size : 0);
  }
  void detach() noexcept override {
    device_.reset();
    verifier_.reset();
  }

  DeviceVerifier& verifier() {
    check_attached();
    return *verifier_;
  }

  void sample(const turbo_sample& args) override {
    check_attached();
    const WayCounts before = device_->counts();
    device_->sample(args);
    const WayCounts& now = device_->counts();
    if (now.whole != before.whole) host_.counter_add("sampler_rows_copied", static_cast<double>(now.whole - before.whole));
    if (now.undecided != before.undecided) host_.counter_add("sampler_rows_undecided", static_cast<double>(now.undecided - before.undecided));
  }

 private:
  void check_attached() const {
    if (!device_) throw Failure(TURBO_INVALID_ARGUMENT, "sampler 'standard': it was attached to no device");
  }
  const Host host_;
  std::optional<DeviceSampler> device_;
  std::optional<DeviceVerifier> verifier_;
};

}  // namespace
}  // namespace turbo::sample_standard

TURBO_PLUGIN("dev.turbo.sample_standard", "Standard sampler", "0.1.0", "turbo", "Apache-2.0",
             turbo::component<turbo::sample_standard::HipSampler>(TURBO_KIND_SAMPLER, "standard", TURBO_TIER_HIP))
