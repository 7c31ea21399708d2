// The device header refuses this mode, and so do vendor headers; a kernel without headers does not.
// flags: -mwavefrontsize64
// expect: wave64
extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, 256))) void wide(float* y) {
  y[__builtin_amdgcn_workitem_id_x()] = 1.0f;
}
