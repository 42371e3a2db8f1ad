# Without MPI the transport stays in the list and says what to install. Sanitizer builds are such builds: Open MPI keeps
# memory until the process ends (LeakSanitizer), and what it synchronises was built without ThreadSanitizer. Python's
# extension averages over Gloo only and need not load MPI. Open MPI only: the launcher's options, the variables by which
# a rank knows its place (comm/rendezvous/launch.cpp) and what has been tried are its.
set(MPI_FOUND OFF)
if(NOT GRADWIRE_SANITIZE AND NOT GRADWIRE_PYTHON)
  set(MPI_CXX_SKIP_MPICXX ON)  # the C functions only
  find_package(MPI QUIET COMPONENTS CXX)
  if(NOT MPI_FOUND)
    message(STATUS "MPI not found: no transport mpi (Debian: apt-get install libopenmpi-dev openmpi-bin)")
  else()
    include(CheckCXXSymbolExists)
    set(CMAKE_REQUIRED_LIBRARIES MPI::MPI_CXX)
    check_cxx_symbol_exists(OPEN_MPI mpi.h GRADWIRE_MPI_IS_OPEN_MPI)
    unset(CMAKE_REQUIRED_LIBRARIES)
    if(NOT GRADWIRE_MPI_IS_OPEN_MPI)
      message(STATUS "MPI is not Open MPI: no transport mpi (Debian: apt-get install libopenmpi-dev openmpi-bin)")
      set(MPI_FOUND OFF)
    endif()
  endif()
endif()
if(MPI_FOUND)
  list(FILTER transport_sources EXCLUDE REGEX "/absent\\.cpp$")
  list(APPEND transport_libraries MPI::MPI_CXX)
  list(APPEND transport_packages "MPI COMPONENTS CXX")
else()
  list(FILTER transport_sources INCLUDE REGEX "/(absent|transport)\\.cpp$")
endif()
# For the tests.
set_property(GLOBAL PROPERTY GRADWIRE_HAS_MPI ${MPI_FOUND})
