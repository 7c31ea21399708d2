# find_package(turbo_sdk REQUIRED) gives turbo::sdk (headers), turbo::sdk_fake (fake host for tests) and the functions
# turbo_plugin_library, turbo_hip_library and turbo_plugin_manifest.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include("${CMAKE_CURRENT_LIST_DIR}/turbo_sdkTargets.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/TurboPlugin.cmake")
