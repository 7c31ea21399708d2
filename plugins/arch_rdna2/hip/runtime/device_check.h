// A device is only used after it has given known answers. [load]
#pragma once

#include "device.h"

namespace turbo::hip {

/// Runs the kernels of device_check.hip (its code objects) and compares. Throws Failure: "self-test: what: expected ...".
void check_device(Device& device, const turbo_code_object* objects, uint32_t n_objects);

}  // namespace turbo::hip
