// The kernels as fibers, for the benchmark's bit check.
#define TB_FIBER
#include "attend_step.hpp"

#include "attend_bench_kernels.hpp"

#include <cstdlib>

namespace attend_bench {

extern "C" __attribute__((visibility("default"))) void attend_reference(const char* codec, uint32_t queries, const AttendArgs* args) {
  namespace fiber = turbo::gpu::fiber;
  const std::string name = std::string("attend_") + codec + "_16_" + std::to_string(queries);
  const fiber::Kernel* kernel = fiber::Kernel::find(fiber::Kernel::first(), name);
  if (!kernel) std::abort();
  const uint32_t grid[3] = {args->a.k.n_kv_heads * args->head_tiles, args->loop ? 1 : args->a.max_chunks, args->a.max_rows};
  fiber::run(*kernel, grid, turbo::gpu::kAttendThreads, 0, args, false);
}

}  // namespace attend_bench
