# Run with cmake -P; see CMakeLists.txt for the variables.
function(must)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    string(REPLACE ";" " " line "${ARGN}")
    message(FATAL_ERROR "${line}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK}")
must("${CMAKE_COMMAND}" --build "${BUILD}" --target turbo_sdk_fake)
must("${CMAKE_COMMAND}" --install "${BUILD}" --component sdk --prefix "${WORK}/prefix")

# A prefix is complete when nothing in it points back at the source or build tree.
file(GLOB_RECURSE installed "${WORK}/prefix/*.cmake")
if(NOT installed)
  message(FATAL_ERROR "the sdk component installed no CMake package")
endif()
foreach(file ${installed})
  file(READ "${file}" text)
  foreach(tree "${SOURCE}" "${BUILD}")
    string(FIND "${text}" "${tree}" at)
    if(NOT at EQUAL -1)
      message(FATAL_ERROR "${file} names ${tree}")
    endif()
  endforeach()
endforeach()

set(options -G "${GENERATOR}" "-DCMAKE_PREFIX_PATH=${WORK}/prefix" "-DCMAKE_CXX_COMPILER=${CXX}" -DCMAKE_BUILD_TYPE=Release)
set(templates "${WORK}/prefix/share/turbo/sdk/templates")
foreach(kind drafter kv_codec sampler weight_format arch_pack)
  must("${CMAKE_COMMAND}" -S "${templates}/${kind}" -B "${WORK}/${kind}" ${options} "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
  must("${CMAKE_COMMAND}" --build "${WORK}/${kind}")
  foreach(file "libmy_${kind}_cpu.so" plugin.yaml)
    if(NOT EXISTS "${WORK}/${kind}/lib/turbo/plugins/my_${kind}/${file}")
      message(FATAL_ERROR "template ${kind} built no ${file}")
    endif()
  endforeach()
  must("${CMAKE_COMMAND}" --install "${WORK}/${kind}" --prefix "${WORK}/installed")
  if(NOT EXISTS "${WORK}/installed/lib/turbo/plugins/my_${kind}/libmy_${kind}_cpu.so")
    message(FATAL_ERROR "template ${kind} installed no library")
  endif()
  # The entry is the only symbol a plugin exports.
  execute_process(COMMAND nm -D --defined-only "${WORK}/${kind}/lib/turbo/plugins/my_${kind}/libmy_${kind}_cpu.so"
    OUTPUT_VARIABLE symbols RESULT_VARIABLE result)
  string(STRIP "${symbols}" symbols)
  if(NOT result EQUAL 0 OR NOT symbols MATCHES "^[0-9a-f]+ T turbo_plugin_query$")
    message(FATAL_ERROR "template ${kind} exports:\n${symbols}")
  endif()
endforeach()

# The shipped sampler builds alone too, and a third party's test links the fake host.
must("${CMAKE_COMMAND}" -S "${SOURCE}/plugins/sample_standard" -B "${WORK}/sample_standard" ${options})
must("${CMAKE_COMMAND}" --build "${WORK}/sample_standard")
file(WRITE "${WORK}/consumer/CMakeLists.txt" "cmake_minimum_required(VERSION 3.22)
project(consumer CXX)
find_package(turbo_sdk 0.1 REQUIRED)
add_executable(consumer main.cpp)
target_link_libraries(consumer PRIVATE turbo::sdk_fake)
if(SANITIZE)
  target_link_options(consumer PRIVATE -fsanitize=\${SANITIZE})
endif()
")
file(WRITE "${WORK}/consumer/main.cpp" "#include <turbo/abi/drafter.h>
#include <turbo/fake/host.hpp>
#include <turbo/fake/pack.hpp>
int main(int, char** argv) {
  turbo::fake::Host host;
  turbo::fake::Component drafter(turbo::fake::Library(argv[1]).query(), \"drafter\", \"hello\", TURBO_TIER_CPU, host);
  return drafter.interface<turbo_drafter>(TURBO_DRAFTER_1) == nullptr;
}
")
must("${CMAKE_COMMAND}" -S "${WORK}/consumer" -B "${WORK}/consumer/build" ${options} "-DSANITIZE=${SANITIZE}")
must("${CMAKE_COMMAND}" --build "${WORK}/consumer/build")
must("${WORK}/consumer/build/consumer" "${WORK}/drafter/lib/turbo/plugins/my_drafter/libmy_drafter_cpu.so")

# A device library: with the device compiler that is found, and without one. Its twin for the CPU is built either way.
file(WRITE "${WORK}/hip_reader/CMakeLists.txt" "cmake_minimum_required(VERSION 3.22)
project(hip_reader CXX)
find_package(turbo_sdk REQUIRED)
find_package(Boost REQUIRED COMPONENTS context)
add_executable(hip_reader main.cpp)
target_link_libraries(hip_reader PRIVATE turbo::sdk Boost::context \${CMAKE_DL_LIBS})
")
file(WRITE "${WORK}/hip_reader/main.cpp" [=[
#define TB_FIBER
#include <dlfcn.h>
#include <turbo/abi/draft/device.h>
#include <turbo/kernel/gpu/device.hpp>
#include <cstdio>
#include <cstring>
struct DemoArgs { const float* x; float* y; float by; uint32_t n; };
// reader LIBRARY ISA...: each kernel file has one object for each ISA; those of fibers run.
int main(int argc, char** argv) {
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) return std::puts(dlerror()), 1;
  const auto query = reinterpret_cast<const turbo_code_object* (*)(uint32_t, uint32_t)>(dlsym(library, "turbo_plugin_query"));
  for (uint32_t file = 0; file < 2; ++file) {
    for (int i = 2; i < argc; ++i) {
      const turbo_code_object* object = query(file, static_cast<uint32_t>(i - 2));
      if (!object || object->struct_size != sizeof *object || std::strcmp(object->isa, argv[i]) != 0) return std::puts("isa"), 1;
      if (std::strcmp(object->isa, "fiber") != 0) {
        if (object->bytes < 1000 || std::memcmp(object->data, "\x7f" "ELF", 4) != 0) return std::puts("object"), 1;
        if (reinterpret_cast<uintptr_t>(object->data) % 4096 != 0) return std::puts("alignment"), 1;
        continue;
      }
      const auto* head = *static_cast<const turbo::gpu::fiber::Kernel* const*>(object->data);
      const auto* kernel = turbo::gpu::fiber::Kernel::find(head, file ? "demo_add" : "demo_scale");
      if (!kernel) return std::puts("kernel"), 1;
      float x[200], y[200] = {};
      for (int k = 0; k < 200; ++k) x[k] = static_cast<float>(k);
      const DemoArgs args{x, y, 3, 200};
      kernel->launch(*kernel, {2, 1, 1}, 128, 0, &args, false);
      for (int k = 0; k < 200; ++k)
        if (y[k] != (file ? x[k] + 3 : x[k] * 3)) return std::puts("result"), 1;
    }
    if (query(file, static_cast<uint32_t>(argc - 2))) return std::puts("more objects than targets"), 1;
  }
}
]=])
must("${CMAKE_COMMAND}" -S "${WORK}/hip_reader" -B "${WORK}/hip_reader/build" ${options})
must("${CMAKE_COMMAND}" --build "${WORK}/hip_reader/build")
set(reader "${WORK}/hip_reader/build/hip_reader")
foreach(kind found none)
  set(build "${WORK}/hip_${kind}")
  set(more)
  if(kind STREQUAL "none")
    set(more "-DTURBO_HIP_CLANG=${WORK}/there-is-no-compiler")
  endif()
  execute_process(COMMAND "${CMAKE_COMMAND}" -S "${SOURCE}/tests/fixtures/hip_plugin" -B "${build}" ${options} -DTURBO_HIP_FIBER=ON
      -DTURBO_HIP_ARCHS=gfx1031 "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror" ${more}
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0 OR NOT output MATCHES "-- hip: ")
    message(FATAL_ERROR "configuring a device library (compiler: ${kind}):\n${output}")
  endif()
  must("${CMAKE_COMMAND}" --build "${build}")
  must("${CMAKE_COMMAND}" --install "${build}" --prefix "${WORK}/hip_${kind}_installed")
  set(folder "${WORK}/hip_${kind}_installed/lib/turbo/plugins/hip_demo")
  set(fibers "${build}/lib/turbo-fiber/plugins/hip_demo")
  must("${reader}" "${fibers}/libhip_demo_hip.so" fiber)
  file(READ "${folder}/plugin.yaml" manifest)
  file(READ "${fibers}/plugin.yaml" fiber_manifest)
  if(NOT fiber_manifest MATCHES "libhip_demo_hip" OR fiber_manifest MATCHES "libhip_demo_cpu" OR NOT manifest MATCHES "libhip_demo_cpu")
    message(FATAL_ERROR "manifests:\n${manifest}\n${fiber_manifest}")
  endif()
  if(output MATCHES "hip: left out: ([^\n]+)")
    message(STATUS "device library left out: ${CMAKE_MATCH_1}")
    if(EXISTS "${folder}/libhip_demo_hip.so" OR manifest MATCHES "libhip_demo_hip" OR manifest MATCHES "tier: hip")
      message(FATAL_ERROR "a library that was left out is installed or listed:\n${manifest}")
    endif()
  elseif(kind STREQUAL "none")
    message(FATAL_ERROR "a compiler that is not there was used:\n${output}")
  else()
    must("${reader}" "${folder}/libhip_demo_hip.so" gfx1031)
    file(READ "${SOURCE}/tests/fixtures/hip_plugin/plugin.yaml" original)
    if(NOT manifest STREQUAL original)
      message(FATAL_ERROR "the manifest changed though nothing was left out:\n${manifest}")
    endif()
    # Nothing of a GPU runtime, and of the C++ library only what host code needs.
    execute_process(COMMAND readelf -d "${folder}/libhip_demo_hip.so" OUTPUT_VARIABLE needed)
    if(needed MATCHES "amdhip|hsa-runtime|cuda")
      message(FATAL_ERROR "linked to a GPU runtime:\n${needed}")
    endif()
  endif()
endforeach()

# A codec that is swapped in by its name alone: nothing of turbo is built again.
execute_process(COMMAND "${BUILD}/bin/turbo" perplexity --model "${SOURCE}/models/turbo-nano-q1.gguf" --file "${SOURCE}/README.md"
    --window 256 --max-tokens 1024 --context 256 --kv-codec toy_q8 --against f16 --json
    --set "plugins.paths=[${WORK}/installed/lib/turbo/plugins]"
  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE errors)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "turbo with the codec of the template:\n${output}${errors}")
endif()
string(JSON codec GET "${output}" kv_codec)
string(JSON divergence GET "${output}" kl_mean)
if(NOT codec STREQUAL "toy_q8" OR divergence GREATER 0.01 OR NOT divergence GREATER 0)
  message(FATAL_ERROR "codec ${codec}, KL ${divergence} against f16: expected toy_q8 and a little more than 0")
endif()
