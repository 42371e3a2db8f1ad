# What differs between builds with CUDA and without: the codecs' table, core/cuda and the kernels. libgradwire takes one
# of the two; tests/cuda_sim compiles the CUDA one once more, against simulated devices.
set(GRADWIRE_CUDA OFF CACHE STRING "CUDA kernels: ON, OFF, or AUTO (where nvcc is found)")
set_property(CACHE GRADWIRE_CUDA PROPERTY STRINGS AUTO ON OFF)

set(GRADWIRE_HAS_CUDA OFF)
# Sanitizers look at kernels in the simulator.
if(GRADWIRE_CUDA STREQUAL "ON" OR (GRADWIRE_CUDA STREQUAL "AUTO" AND NOT GRADWIRE_SANITIZE))
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(GRADWIRE_HAS_CUDA ON)
  elseif(GRADWIRE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "GRADWIRE_CUDA=ON, and no nvcc is found: put it on PATH, or set CMAKE_CUDA_COMPILER to it")
  endif()
endif()

# gradwire_device_sources(RESULT): the CUDA sources of core and codecs.
function(gradwire_device_sources result)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/core/cuda/*.cu)
  get_property(codecs GLOBAL PROPERTY GRADWIRE_CUDA_CODEC_SOURCES)
  set(${result} ${sources} ${codecs} PARENT_SCOPE)
endfunction()

include(${PROJECT_SOURCE_DIR}/compressors/codec_folders.cmake)
get_property(names GLOBAL PROPERTY GRADWIRE_CODECS)
get_property(cuda_names GLOBAL PROPERTY GRADWIRE_CUDA_CODECS)
if(GRADWIRE_HAS_CUDA)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80 90 100)  # A100, H100/H200, B200
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  # CMake 3.25 does not know this compiler's option.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  add_library(gradwire_cuda_flags INTERFACE)
  # No contraction, as on the host: the bytes must be the same.
  set(flags --fmad=false --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra,-ffp-contract=off)
  # A kernel that keeps registers in memory reads and writes more than it has to.
  if(GRADWIRE_WERROR)
    list(APPEND flags -Werror=all-warnings -Xptxas=--warn-on-spills,--warn-on-local-memory-usage,--warning-as-error)
  endif()
  target_compile_options(gradwire_cuda_flags INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:${flags}>")
  gradwire_device_sources(device_sources)
  add_library(gradwire_device OBJECT ${device_sources})
  target_link_libraries(gradwire_device PRIVATE gradwire_cuda_flags)
  gradwire_codec_table(gradwire_device ${names} CUDA ${cuda_names})
else()
  add_library(gradwire_device OBJECT ${PROJECT_SOURCE_DIR}/core/no_cuda.cpp)
  target_link_libraries(gradwire_device PRIVATE gradwire_flags)
  gradwire_codec_table(gradwire_device ${names})
endif()
target_include_directories(gradwire_device PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                           PRIVATE ${PROJECT_BINARY_DIR}/views/compressors)
set_property(GLOBAL APPEND PROPERTY GRADWIRE_MODULES gradwire_device)
