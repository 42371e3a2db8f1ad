find_package(hwy REQUIRED)
target_link_libraries(gradwire_program_lib PRIVATE hwy::hwy)
