// The component "rdna2".
#include "pack.h"
#include "runtime/discover.h"

TURBO_PLUGIN("dev.turbo.arch_rdna2", "HIP compute", "0.1.0", "turbo", "Apache-2.0",
             turbo::component<turbo::arch_rdna2::Pack>(
                 TURBO_KIND_ARCH_PACK, "rdna2", TURBO_TIER_HIP,
                 "{" TURBO_HIP_DEVICE_OPTION R"(,
                     "graphs": {"type": "bool", "default": true, "doc": "Replay steps as recorded graphs."},
                     "fuse": {"type": "bool", "default": true, "doc": "Let formats and codecs do several ops in one call."},
                     "step_kernel": {"type": "bool", "default": false, "doc": "Run the layers of a step as one launch where a kernel for it was built (needs graphs and fuse); slower than launches that begin early."},
                     "threads": {"type": "int", "default": 1, "min": 0, "max": 1024, "doc": "Threads that repack weights while loading."}})"))
