# The page that reports are made of; both `ab` and `sweep` include this file from their command.cmake.
include_guard(GLOBAL)
# Debian: libjs-chart.js. Elsewhere: any Chart.js 3 or 4 bundle, -DGRADWIRE_CHART_JS=/path/to/chart.min.js.
find_file(GRADWIRE_CHART_JS NAMES chart.min.js Chart.min.js chart.umd.js
          PATHS /usr/share/javascript/chart.js /usr/share/nodejs/chart.js/dist
          DOC "Chart.js bundle that is embedded in reports")
if(NOT GRADWIRE_CHART_JS)
  message(FATAL_ERROR "Chart.js not found: install libjs-chart.js, give -DGRADWIRE_CHART_JS=/path/to/chart.min.js, "
                      "or build without the program (-DGRADWIRE_PROGRAM=OFF)")
endif()
target_sources(gradwire_program_lib PRIVATE ${CMAKE_CURRENT_LIST_DIR}/page.cpp)
gradwire_embed(report_shell_html ${CMAKE_CURRENT_LIST_DIR}/shell.html)
gradwire_embed(report_page_css ${CMAKE_CURRENT_LIST_DIR}/page.css)
gradwire_embed(report_page_js ${CMAKE_CURRENT_LIST_DIR}/page.js)
gradwire_embed(report_chart_js ${GRADWIRE_CHART_JS})
