// Argument structs of the kernels that the tests of the runtime launch.
#pragma once

#include <stdint.h>

struct AddArgs {
  const float *a, *b;
  float* out;
  uint32_t n, reserved;
};
struct alignas(16) OverrunArgs {
  uint8_t* out;
  int64_t index;
};
struct MeetArgs {
  uint32_t* counter;
};
struct SharedArgs {
  uint32_t* out;
};
