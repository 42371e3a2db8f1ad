# `cmake --install` puts library, headers, CMake package and program under the prefix; `find_package(gradwire)` then gives
# the target gradwire::gradwire.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS gradwire EXPORT gradwire_targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/gradwire DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp"
        PATTERN cuda EXCLUDE)
if(GRADWIRE_HAS_CUDA)
  install(DIRECTORY include/gradwire/cuda DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gradwire FILES_MATCHING PATTERN "*.hpp")
endif()
install(EXPORT gradwire_targets NAMESPACE gradwire:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/gradwire)
get_property(transport_packages GLOBAL PROPERTY GRADWIRE_TRANSPORT_PACKAGES)
set(GRADWIRE_TRANSPORT_DEPENDENCIES "")
foreach(package IN LISTS transport_packages)
  string(APPEND GRADWIRE_TRANSPORT_DEPENDENCIES "  find_dependency(${package})\n")
endforeach()
configure_package_config_file(cmake/gradwire-config.cmake.in ${PROJECT_BINARY_DIR}/gradwire-config.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/gradwire)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gradwire-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/gradwire-config.cmake ${PROJECT_BINARY_DIR}/gradwire-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/gradwire)
if(TARGET gradwire_program)
  install(TARGETS gradwire_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
