# gradwire_test(NAME SOURCES … [LIBRARIES …] [LABELS …] [TIMEOUT seconds])
# One GoogleTest executable whose tests ctest lists one by one. Labels: `sanitize` for suites that the sanitizer builds run
# as well; suites with threads also carry `threads` and run under ThreadSanitizer.
include(GoogleTest)

function(gradwire_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBRARIES;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(GRADWIRE_SANITIZE STREQUAL "thread" AND NOT "threads" IN_LIST ARG_LABELS)
    return()
  elseif(GRADWIRE_SANITIZE AND NOT "sanitize" IN_LIST ARG_LABELS AND NOT "threads" IN_LIST ARG_LABELS)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  # Tests run for seconds and take minutes to optimise.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  # Tests see the whole tree.
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE gradwire gradwire_flags ${ARG_LIBRARIES} GTest::gtest GTest::gtest_main)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
