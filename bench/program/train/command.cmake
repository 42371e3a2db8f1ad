gradwire_embed(digits_csv_gz ${PROJECT_SOURCE_DIR}/examples/data/digits.csv.gz)

# The text workload's default: this project's own pages.
file(GLOB pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/*.md)
string(REPLACE ";" "|" joined "${pages}")
add_custom_command(
  OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/pages.txt
  COMMAND ${CMAKE_COMMAND} "-DINPUTS=${joined}" -DOUTPUT=${CMAKE_CURRENT_BINARY_DIR}/pages.txt
          -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/join.cmake
  DEPENDS ${pages} ${CMAKE_CURRENT_SOURCE_DIR}/cmake/join.cmake
  VERBATIM)
gradwire_embed(pages ${CMAKE_CURRENT_BINARY_DIR}/pages.txt)
