find_package(Boost 1.74 REQUIRED)
target_link_libraries(gradwire_program_lib PRIVATE Boost::headers)
include(${CMAKE_CURRENT_LIST_DIR}/../report/report.cmake)
gradwire_embed(ab_report_js ${CMAKE_CURRENT_LIST_DIR}/report.js)
