# gradwire_test(NAME SOURCES … [LIBRARIES …] [LABELS …] [TIMEOUT seconds] [AGAINST target] [LAUNCHED])
# One GoogleTest executable whose tests ctest lists one by one. Labels: `sanitize` for suites that the sanitizer builds run
# as well; suites with threads also carry `threads` and run under ThreadSanitizer. AGAINST: another build of the library.
include(GoogleTest)

# What nearly every test reads, parsed once for all of them: half of the time that a test takes to compile.
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/headers.cpp CONTENT "int main() {}\n")
add_executable(gradwire_test_headers ${CMAKE_CURRENT_BINARY_DIR}/headers.cpp)
# Tests run for seconds and take minutes to optimise. GCC 12 at -O1 sees std::string overrun itself (GCC bug 105651).
set(gradwire_test_options $<$<CONFIG:Release>:-O1>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND gradwire_test_options -Wno-array-bounds)
endif()
target_compile_options(gradwire_test_headers PRIVATE ${gradwire_test_options})
target_link_libraries(gradwire_test_headers PRIVATE gradwire gradwire_flags GTest::gtest)
target_precompile_headers(gradwire_test_headers PRIVATE <gtest/gtest.h> <algorithm> <cmath> <filesystem> <fstream>
                          <functional> <span> <string> <thread> <vector>)

function(gradwire_test name)
  cmake_parse_arguments(ARG "LAUNCHED" "TIMEOUT;AGAINST" "SOURCES;LIBRARIES;LABELS" ${ARGN})
  if(NOT ARG_AGAINST)
    set(ARG_AGAINST gradwire)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(GRADWIRE_SANITIZE STREQUAL "thread" AND NOT "threads" IN_LIST ARG_LABELS)
    return()
  elseif(GRADWIRE_SANITIZE AND NOT "sanitize" IN_LIST ARG_LABELS AND NOT "threads" IN_LIST ARG_LABELS)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  if(NOT DEFINED CMAKE_UNITY_BUILD)  # analysers want to see the files one by one
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  endif()
  target_compile_options(${name} PRIVATE ${gradwire_test_options})
  # Tests see the whole tree.
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_AGAINST} gradwire_flags ${ARG_LIBRARIES} GTest::gtest GTest::gtest_main)
  target_precompile_headers(${name} REUSE_FROM gradwire_test_headers)
  if(ARG_LAUNCHED)
    return()
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
