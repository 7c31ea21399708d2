# turbo_plugin_library(<folder> <library> SOURCES file... [LIBS lib...])
#   One shared object of a plugin (one per tier). Hidden visibility, only turbo_plugin_query exported, bound at load.
#   Lands beside the folder's plugin.yaml in <build>/lib/turbo/plugins/<folder>/ (or ${TURBO_PLUGIN_OUTPUT_DIR}).
# turbo_plugin_manifest(<folder>)
#   Copies plugin.yaml there and installs the folder.
set(TURBO_PLUGIN_CMAKE_DIR "${CMAKE_CURRENT_LIST_DIR}")

function(turbo_plugin_library folder library)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  if(NOT TURBO_PLUGIN_OUTPUT_DIR)
    set(TURBO_PLUGIN_OUTPUT_DIR "${CMAKE_BINARY_DIR}/lib/turbo/plugins")
  endif()
  add_library(${library} MODULE ${ARG_SOURCES})
  target_link_libraries(${library} PRIVATE turbo::sdk ${ARG_LIBS})
  target_include_directories(${library} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/src")
  set_target_properties(${library} PROPERTIES
    CXX_VISIBILITY_PRESET hidden C_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LIBRARY_OUTPUT_DIRECTORY "${TURBO_PLUGIN_OUTPUT_DIR}/${folder}")
  target_link_options(${library} PRIVATE -Wl,-z,now -Wl,-z,defs
    "-Wl,--version-script=${TURBO_PLUGIN_CMAKE_DIR}/plugin.map")
  if(NOT TURBO_PLUGIN_INSTALL_DIR)
    set(TURBO_PLUGIN_INSTALL_DIR "lib/turbo/plugins")
  endif()
  install(TARGETS ${library} LIBRARY DESTINATION "${TURBO_PLUGIN_INSTALL_DIR}/${folder}" COMPONENT turbo)
endfunction()

function(turbo_plugin_manifest folder)
  if(NOT TURBO_PLUGIN_OUTPUT_DIR)
    set(TURBO_PLUGIN_OUTPUT_DIR "${CMAKE_BINARY_DIR}/lib/turbo/plugins")
  endif()
  if(NOT TURBO_PLUGIN_INSTALL_DIR)
    set(TURBO_PLUGIN_INSTALL_DIR "lib/turbo/plugins")
  endif()
  configure_file("${CMAKE_CURRENT_SOURCE_DIR}/plugin.yaml" "${TURBO_PLUGIN_OUTPUT_DIR}/${folder}/plugin.yaml" COPYONLY)
  install(FILES plugin.yaml DESTINATION "${TURBO_PLUGIN_INSTALL_DIR}/${folder}" COMPONENT turbo)
endfunction()
