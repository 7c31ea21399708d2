# turbo_plugin_library(<folder> <library> SOURCES file... [LIBS lib...] [NO_INSTALL])
#   One shared object of a plugin (one per tier). Hidden visibility, only turbo_plugin_query exported, bound at load.
#   Lands beside the folder's plugin.yaml in <build>/lib/turbo/plugins/<folder>/ (or ${TURBO_PLUGIN_OUTPUT_DIR}).
# turbo_plugin_manifest(<folder> [NO_INSTALL])
#   Copies plugin.yaml there and installs the folder.

function(turbo_plugin_library folder library)
  cmake_parse_arguments(ARG "NO_INSTALL" "" "SOURCES;LIBS" ${ARGN})
  if(NOT TURBO_PLUGIN_OUTPUT_DIR)
    set(TURBO_PLUGIN_OUTPUT_DIR "${CMAKE_BINARY_DIR}/lib/turbo/plugins")
  endif()
  add_library(${library} MODULE ${ARG_SOURCES})
  target_link_libraries(${library} PRIVATE turbo::sdk ${ARG_LIBS})
  target_include_directories(${library} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/src")
  # Sums and products keep the order and rounding they are written with; kernels ask for fma by name.
  target_compile_options(${library} PRIVATE -ffp-contract=off)
  set_target_properties(${library} PROPERTIES
    CXX_VISIBILITY_PRESET hidden C_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LIBRARY_OUTPUT_DIRECTORY "${TURBO_PLUGIN_OUTPUT_DIR}/${folder}")
  set(map "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/plugin.map")
  target_link_options(${library} PRIVATE -Wl,-z,now "-Wl,--version-script=${map}")
  set_property(TARGET ${library} APPEND PROPERTY LINK_DEPENDS "${map}")
  # Clang leaves the sanitizer runtime to the executable, so its symbols stay open in a library.
  if(NOT (TURBO_SANITIZE AND CMAKE_CXX_COMPILER_ID MATCHES "Clang"))
    target_link_options(${library} PRIVATE -Wl,-z,defs)
  endif()
  if(NOT ARG_NO_INSTALL)
    if(NOT TURBO_PLUGIN_INSTALL_DIR)
      set(TURBO_PLUGIN_INSTALL_DIR "lib/turbo/plugins")
    endif()
    install(TARGETS ${library} LIBRARY DESTINATION "${TURBO_PLUGIN_INSTALL_DIR}/${folder}" COMPONENT turbo)
  endif()
endfunction()

function(turbo_plugin_manifest folder)
  cmake_parse_arguments(ARG "NO_INSTALL" "" "" ${ARGN})
  if(NOT TURBO_PLUGIN_OUTPUT_DIR)
    set(TURBO_PLUGIN_OUTPUT_DIR "${CMAKE_BINARY_DIR}/lib/turbo/plugins")
  endif()
  if(NOT TURBO_PLUGIN_INSTALL_DIR)
    set(TURBO_PLUGIN_INSTALL_DIR "lib/turbo/plugins")
  endif()
  configure_file("${CMAKE_CURRENT_SOURCE_DIR}/plugin.yaml" "${TURBO_PLUGIN_OUTPUT_DIR}/${folder}/plugin.yaml" COPYONLY)
  if(NOT ARG_NO_INSTALL)
    install(FILES plugin.yaml DESTINATION "${TURBO_PLUGIN_INSTALL_DIR}/${folder}" COMPONENT turbo)
  endif()
endfunction()
