# Flags of everything that is built here; none of them reaches a consumer.
add_library(gradwire_flags INTERFACE)
target_compile_features(gradwire_flags INTERFACE cxx_std_20)
# No contraction and no fast-math: the fast paths, the reference loops and the kernels must give the same bytes.
target_compile_options(gradwire_flags INTERFACE -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -ffp-contract=off)
# GCC 12 sees overlaps and unset members that are not there in std::string's operator+ and in nlohmann::json (GCC bugs
# 105651 and 105562).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(gradwire_flags INTERFACE -Wno-restrict -Wno-maybe-uninitialized)
endif()
if(GRADWIRE_WERROR)
  target_compile_options(gradwire_flags INTERFACE -Werror)
endif()

set(GRADWIRE_SANITIZE "" CACHE STRING "empty, address (with undefined) or thread")
if(GRADWIRE_SANITIZE STREQUAL "address")
  # AddressSanitizer finds what `null` and `object-size` would, and with them vector code takes minutes to compile.
  set(sanitize -fsanitize=address,undefined -fno-sanitize=null,object-size -fno-sanitize-recover=all
               -fno-omit-frame-pointer)
elseif(GRADWIRE_SANITIZE STREQUAL "thread")
  set(sanitize -fsanitize=thread -fno-omit-frame-pointer)
elseif(GRADWIRE_SANITIZE)
  message(FATAL_ERROR "GRADWIRE_SANITIZE is '${GRADWIRE_SANITIZE}': use address, thread or nothing")
endif()
if(GRADWIRE_SANITIZE)
  target_compile_options(gradwire_flags INTERFACE ${sanitize})
  target_link_options(gradwire_flags INTERFACE ${sanitize})
endif()
