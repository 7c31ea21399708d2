// Plain weight format and KV codec of the self-test: f32, one loop per call, no repacking. Also the shortest example
// of what the pack expects from a format or codec.
#pragma once

#include "kv_pool.h"
#include "weights.h"

namespace turbo::arch_cpu {

FormatSource reference_formats();
CodecSource reference_codecs();

}  // namespace turbo::arch_cpu
