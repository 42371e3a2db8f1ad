include(${CMAKE_CURRENT_LIST_DIR}/../report/report.cmake)
gradwire_embed(sweep_js ${CMAKE_CURRENT_LIST_DIR}/sweep.js)
# The serial model draws the same random numbers as the reductions: core/random.hpp, and nothing else of core.
if(NOT EXISTS ${PROJECT_BINARY_DIR}/views/bench/core)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/core ${PROJECT_BINARY_DIR}/views/bench/core SYMBOLIC)
endif()
