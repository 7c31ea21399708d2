# Host code and kernels of the pack but for its plugin table, for turbo_hip_library and for tests.
set(ARCH_RDNA2_SOURCES)
foreach(file pack memory components weights kv_pool step_table ops reference flow lower_plain lower_matmul lower_attend lower_bytes compile run self_test step_list step_kernel)
  list(APPEND ARCH_RDNA2_SOURCES "${CMAKE_CURRENT_LIST_DIR}/${file}.cpp")
endforeach()
set(ARCH_RDNA2_KERNELS "${CMAKE_CURRENT_LIST_DIR}/ops.hip" "${CMAKE_CURRENT_LIST_DIR}/reference.hip")
set(ARCH_RDNA2_STEP_KERNELS "${CMAKE_CURRENT_LIST_DIR}/step_f16.hip")
