# One executable whose every process is a rank: `ctest -L mpi` runs it under mpirun, once for each number of ranks.
# gradwire_mpi_test(NAME RANKS N FILTER gtest-filter [OPTIONS …] [SAYS regex]); SAYS: what it prints decides.
function(gradwire_mpi_test name)
  cmake_parse_arguments(ARG "" "RANKS;FILTER;SAYS" "OPTIONS" ${ARGN})
  # More ranks than cores, several threads each, one machine and so no ssh; root, where containers run as root.
  add_test(NAME mpi.${name}
           COMMAND ${GRADWIRE_MPIRUN} --allow-run-as-root --oversubscribe --bind-to none --mca plm isolated
                   --mca mpi_yield_when_idle 1 ${ARG_OPTIONS} -n ${ARG_RANKS} $<TARGET_FILE:comm_mpi_test> --gtest_filter=${ARG_FILTER} --gtest_brief=1)
  set_tests_properties(mpi.${name} PROPERTIES TIMEOUT 60 LABELS mpi PROCESSORS 2
                       FAIL_REGULAR_EXPRESSION " 0 tests from")
  if(ARG_SAYS)
    set_tests_properties(mpi.${name} PROPERTIES PASS_REGULAR_EXPRESSION "${ARG_SAYS}")
  endif()
endfunction()

function(gradwire_mpi_skipped reason)
  add_test(NAME mpi COMMAND ${CMAKE_COMMAND} -E echo "skipped: ${reason}")
  set_tests_properties(mpi PROPERTIES SKIP_REGULAR_EXPRESSION "skipped:" LABELS mpi)
endfunction()

if(GRADWIRE_SANITIZE)
  return()
endif()
get_property(has_mpi GLOBAL PROPERTY GRADWIRE_HAS_MPI)
find_program(GRADWIRE_MPIRUN mpirun)
if(NOT has_mpi)
  gradwire_mpi_skipped("this build has no MPI (Debian: apt-get install libopenmpi-dev openmpi-bin)")
elseif(NOT GRADWIRE_MPIRUN)
  gradwire_mpi_skipped("there is no mpirun to start ranks with (Debian: apt-get install openmpi-bin)")
else()
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI QUIET REQUIRED COMPONENTS CXX)
  gradwire_test(comm_mpi_test SOURCES conformance_test.cpp failure_test.cpp mpi_test.cpp mpi_world.cpp worlds.cpp
                LIBRARIES MPI::MPI_CXX LAUNCHED)
  foreach(ranks IN ITEMS 1 2 4 7)
    gradwire_mpi_test(conformance_${ranks} RANKS ${ranks} FILTER *Conformance.*)
  endforeach()
  gradwire_mpi_test(conformance_3 RANKS 3 FILTER *Conformance.*:*OneWorld.*)
  gradwire_mpi_test(failures RANKS 3 FILTER *Failure.*)
  gradwire_mpi_test(own RANKS 3 FILTER Mpi.*:Transfer.*)
  gradwire_mpi_test(threads RANKS 1 FILTER MpiThreads.* OPTIONS -x GRADWIRE_TEST_ONE_THREAD=1)
  gradwire_mpi_test(start RANKS 3 FILTER MpiStart.*)
  gradwire_mpi_test(death RANKS 3 FILTER MpiDeath.* OPTIONS --enable-recovery
                    SAYS "rank 0 was told.*rank 2 was told|rank 2 was told.*rank 0 was told")
endif()
