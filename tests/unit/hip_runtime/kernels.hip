// Small kernels of the tests.
#include "kernel_args.h"

#include <turbo/kernel/gpu/device.hpp>

using namespace turbo::gpu;

TB_KERNEL(test_add, AddArgs, 64) {
  const uint32_t i = block_x() * threads() + thread();
  if (i < args.n) args.out[i] = args.a[i] + args.b[i];
}

TB_KERNEL(test_overrun, OverrunArgs, 32) {
  if (thread() == 0) args.out[args.index] = 1;
}

// Every block adds itself and waits for the others: ends only when all run at once.
TB_KERNEL(test_meet, MeetArgs, 32) {
  if (thread() == 0) {
    atomic_add(args.counter, 1);
    while (load_shared_word(args.counter) < grid_x()) turbo::gpu::pause();
  }
}

TB_KERNEL(test_shared, SharedArgs, 64) {
  TB_DYNAMIC_SHARED(uint32_t, words);
  words[thread()] = thread() + 1;
  sync_block();
  if (thread() == 0) args.out[block_x()] = words[threads() - 1];
}
