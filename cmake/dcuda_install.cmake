# SPDX-License-Identifier: BSD-3-Clause
# The installed package. Each backend has its own library and its own file of targets, so that one prefix can hold both.
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/dcuda")

install(DIRECTORY include/ DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(FILES LICENSE NOTICE DESTINATION "${CMAKE_INSTALL_DOCDIR}")
set(installed_targets dcuda_device dcuda_host dcuda_dcuda)
if(TARGET dcuda_checked)
    list(APPEND installed_targets dcuda_checked)
endif()
install(TARGETS ${installed_targets} EXPORT dcuda_targets)
if(DCUDA_SODIUM_LIBRARY MATCHES "\\.a$")
    install(FILES "${DCUDA_SODIUM_LIBRARY}" DESTINATION "${CMAKE_INSTALL_LIBDIR}/dcuda" RENAME libsodium.a)
endif()
install(EXPORT dcuda_targets FILE dcuda-${DCUDA_BACKEND}-targets.cmake NAMESPACE dcuda:: DESTINATION "${package_dir}")

configure_package_config_file(cmake/dcudaConfig.cmake.in "${PROJECT_BINARY_DIR}/dcudaConfig.cmake"
                              INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/dcudaConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/dcudaConfig.cmake" "${PROJECT_BINARY_DIR}/dcudaConfigVersion.cmake"
              cmake/dcuda_add_executable.cmake DESTINATION "${package_dir}")
