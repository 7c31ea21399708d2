# Packages and removal.
#
#   cmake --install <build> --prefix P             <P>/bin/turbo, <P>/lib/turbo/plugins, <P>/share/turbo
#   cpack -G DEB --config <build>/CPackConfig.cmake   turbo_*.deb and turbo-sdk_*.deb (needs dpkg-dev)
#   cmake --build <build> --target uninstall       remove what was installed from this build folder
#
# Component "turbo" runs without the component "sdk", which has what plugin authors need.

install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/turbo" RENAME copyright COMPONENT turbo)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/turbo-sdk" RENAME copyright COMPONENT sdk)

if(NOT TARGET uninstall)
  add_custom_target(uninstall
    COMMAND "${CMAKE_COMMAND}" -DTURBO_BINARY_DIR=${CMAKE_BINARY_DIR} -P "${CMAKE_CURRENT_LIST_DIR}/TurboUninstall.cmake"
    COMMENT "Removing what was installed from this build folder" VERBATIM)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME turbo)
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_VENDOR "The turbo authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_PACKAGE_DIRECTORY "${CMAKE_BINARY_DIR}/packages")
set(CPACK_PACKAGING_INSTALL_PREFIX "/usr")
set(CPACK_STRIP_FILES ON)

set(CPACK_COMPONENTS_ALL turbo sdk)
set(CPACK_COMPONENT_TURBO_DESCRIPTION "The turbo executable, its plugins, the bundled profiles and models.")
set(CPACK_COMPONENT_SDK_DESCRIPTION "Headers, CMake functions, a fake host and templates for writing turbo plugins.")

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "The turbo authors <turbo@localhost>")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_TURBO_PACKAGE_NAME turbo)
set(CPACK_DEBIAN_TURBO_PACKAGE_SHLIBDEPS ON)  # the libraries that the executable and the plugins link
set(CPACK_DEBIAN_SDK_PACKAGE_NAME turbo-sdk)
set(CPACK_DEBIAN_SDK_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_SDK_PACKAGE_RECOMMENDS "g++, cmake (>= 3.22)")
include(CPack)
