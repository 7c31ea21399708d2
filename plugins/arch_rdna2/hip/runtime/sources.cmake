# Host code and kernels of the runtime, for turbo_hip_library and for tests. Links ${CMAKE_DL_LIBS}.
set(ARCH_RDNA2_RUNTIME_SOURCES)
foreach(file runtime runtime_platform runtime_amd runtime_cuda runtime_fiber isa device device_check discover discover_library)
  list(APPEND ARCH_RDNA2_RUNTIME_SOURCES "${CMAKE_CURRENT_LIST_DIR}/${file}.cpp")
endforeach()
set(ARCH_RDNA2_RUNTIME_KERNELS "${CMAKE_CURRENT_LIST_DIR}/device_check.hip")
