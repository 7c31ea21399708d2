# Compiler cache, fast linker, warnings and sanitizers, for every target of the tree.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

find_program(TURBO_CCACHE ccache)
if(TURBO_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER "${TURBO_CCACHE}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${TURBO_CCACHE}")
endif()
find_program(TURBO_MOLD mold)
if(TURBO_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")

# -ffp-contract=off: the same source gives the same bits on every ISA; kernels ask for fma by name.
add_compile_options(-Wall -Wextra -Wno-missing-field-initializers -ffp-contract=off)

if(TURBO_SANITIZE)
  add_compile_options(-fsanitize=${TURBO_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TURBO_SANITIZE})
  if(TURBO_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

# Coverage for libFuzzer in every library; only the fuzz targets link its main.
if(TURBO_BUILD_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
