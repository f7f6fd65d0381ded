# SPDX-License-Identifier: BSD-3-Clause
# The installed package. Each backend has its own library and its own file of targets, so that one prefix can hold both.
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/dcuda")

install(DIRECTORY include/ DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(FILES LICENSE NOTICE README.md CHANGELOG.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")
# Guides, and the examples with what builds them outside of this tree. Links between them stay right.
install(
    DIRECTORY docs
    DESTINATION "${CMAKE_INSTALL_DOCDIR}"
    FILES_MATCHING
    PATTERN "*.md"
    PATTERN "*.png"
    PATTERN "*.svg"
    PATTERN "api" EXCLUDE)
install(
    DIRECTORY examples
    DESTINATION "${CMAKE_INSTALL_DOCDIR}"
    FILES_MATCHING
    PATTERN "*.cu")
install(FILES examples/installed.cmake DESTINATION "${CMAKE_INSTALL_DOCDIR}/examples" RENAME CMakeLists.txt)
install(FILES data/jacksboro_fault_dem.pgm data/us_airline_routes.mtx data/us_airports.csv
        DESTINATION "${CMAKE_INSTALL_DOCDIR}/data")
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

# For users without CMake: pkg-config --cflags --libs dcuda-<backend>. The folders are found from the file's own.
file(RELATIVE_PATH dcuda_prefix_of_pc "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
string(REGEX REPLACE "/$" "" dcuda_prefix_of_pc "${dcuda_prefix_of_pc}")
set(dcuda_pc_flags "-I\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
set(dcuda_pc_libraries "-lsodium -ldl")
if(NOT DCUDA_FMT_HEADER_ONLY)
    string(PREPEND dcuda_pc_libraries "-lfmt ")
endif()
if(DCUDA_BACKEND STREQUAL "cpu")
    string(APPEND dcuda_pc_flags " -I\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}/dcuda/cpu -pthread")
    string(APPEND dcuda_pc_libraries " -lboost_context -pthread -Wl,-rpath,\${modules}")
else()
    string(APPEND dcuda_pc_flags " -DDCUDA_BACKEND_CUDA=1")
    string(APPEND dcuda_pc_libraries " -Xlinker=-rpath,\${modules}")
endif()
configure_file(cmake/dcuda.pc.in "${PROJECT_BINARY_DIR}/dcuda-${DCUDA_BACKEND}.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/dcuda-${DCUDA_BACKEND}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

# cmake --install --strip leaves archives alone; their debug information would be most of the installation, and of users'
# programs.
set(dcuda_archives "$<TARGET_FILE_NAME:dcuda_host>")
if(TARGET dcuda_checked)
    list(APPEND dcuda_archives "$<TARGET_FILE_NAME:dcuda_checked>")
endif()
install(
    CODE "
    if(CMAKE_INSTALL_DO_STRIP)
        foreach(archive ${dcuda_archives})
            execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-debug
                            \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/\${archive}\"
                            COMMAND_ERROR_IS_FATAL ANY)
        endforeach()
    endif()")
