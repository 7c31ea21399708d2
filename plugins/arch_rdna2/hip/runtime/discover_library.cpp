// Discovery over the code objects of this library.
#include "discover.h"

extern "C" {
extern const turbo_code_object turbo_kernels_device_check[];
extern const uint32_t turbo_n_kernels_device_check;
}

namespace turbo::hip {

void probe_device(const Host& host, Probe& answer) {
  probe_device(host, answer, &make_runtime, turbo_kernels_device_check, turbo_n_kernels_device_check);
}

std::unique_ptr<Device> open_device(const Host& host) {
  return open_device(host, make_runtime(), turbo_kernels_device_check, turbo_n_kernels_device_check);
}

}  // namespace turbo::hip
