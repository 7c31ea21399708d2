// Which device the tier uses, and what probe and errors say about it. [load]
//
// Option "device": its number as the runtime counts (HIP_VISIBLE_DEVICES is the runtime's own matter), or a part of its
// name, instruction set or bus address, in any case of letters. Of several, and with "auto" of all that the library has code
// for: one with memory of its own before one that shares the host's, then the one with most memory.
#pragma once

#include <turbo/plugin.hpp>

#include <memory>
#include <string>

#include "device.h"

namespace turbo::hip {

/// For the pack's option schema: its entry "device".
#define TURBO_HIP_DEVICE_OPTION \
  R"("device": {"type": "string", "default": "auto", "doc": "Number or part of the name, instruction set or bus address; auto: the one with most memory."})"

/// The device to use; `objects` are any kernel file's of the library. Throws TURBO_NOT_FOUND, naming all devices, for one
/// that there is not; TURBO_UNSUPPORTED when the library has no code for it.
DeviceFacts choose_device(Runtime& runtime, const std::string& wanted, const turbo_code_object* objects, uint32_t n_objects);

/// "AMD Radeon RX 6700 XT (gfx1031, 12.0 GiB, 0000:03:00.0), HIP runtime 5.2.21153 (libamdhip64.so.5)", with its number, the
/// other devices and HSA_OVERRIDE_GFX_VERSION when there are any.
std::string describe(Runtime& runtime, const DeviceFacts& chosen);

/// probe of a pack: leaves nothing behind. A machine without a usable device gives score 0 with the reason.
void probe_device(const Host& host, Probe& answer);

/// Find, open and check the device that the options ask for. On a failure the message names the architecture, the
/// override and the runtime's version.
std::unique_ptr<Device> open_device(const Host& host);

// With another runtime and other objects than the library's own; for tests.
void probe_device(const Host& host, Probe& answer, std::unique_ptr<Runtime> (*make)(), const turbo_code_object* objects, uint32_t n_objects);
std::unique_ptr<Device> open_device(const Host& host, std::unique_ptr<Runtime> runtime, const turbo_code_object* objects, uint32_t n_objects);

}  // namespace turbo::hip
