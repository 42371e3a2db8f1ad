# Without Gloo the transport stays in the list and says what to install.
find_package(Gloo QUIET)
if(Gloo_FOUND)
  list(FILTER transport_sources EXCLUDE REGEX "/absent\\.cpp$")
  list(APPEND transport_libraries gloo)
else()
  message(STATUS "Gloo not found: no transport for several processes (Debian: apt-get install libgloo-dev)")
  list(FILTER transport_sources INCLUDE REGEX "/(absent|transport)\\.cpp$")
endif()
