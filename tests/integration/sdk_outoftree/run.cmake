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
