#include "base/status.h"

namespace turbo {

const char* code_name(Code code) {
  switch (code) {
    case Code::ok: return "ok";
    case Code::invalid_argument: return "invalid_argument";
    case Code::unsupported: return "unsupported";
    case Code::not_found: return "not_found";
    case Code::resource_exhausted: return "resource_exhausted";
    case Code::corrupt_input: return "corrupt_input";
    case Code::cancelled: return "cancelled";
    case Code::device_lost: return "device_lost";
    case Code::internal: return "internal";
  }
  return "internal";
}

}  // namespace turbo
