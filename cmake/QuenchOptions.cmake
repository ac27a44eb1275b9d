# Language level, warnings and code generation shared by every target.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(QUENCH_CCACHE ccache)
if(QUENCH_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${QUENCH_CCACHE})
endif()

add_library(quench_options INTERFACE)
target_include_directories(quench_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(quench_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers
                       -Werror -fno-strict-aliasing
                       # GCC 12 reports std::string concatenation (its bug 105651).
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
                       # A product and a sum are fused only where the source says fma: conversions are bit-exact.
                       -ffp-contract=off)
if(QUENCH_SANITIZE)
  target_compile_options(quench_options INTERFACE -fsanitize=${QUENCH_SANITIZE} -fno-omit-frame-pointer -g1)
  target_link_options(quench_options INTERFACE -fsanitize=${QUENCH_SANITIZE})
endif()
if(QUENCH_COVERAGE)
  target_compile_options(quench_options INTERFACE --coverage -O1 -fprofile-update=atomic)
  target_link_options(quench_options INTERFACE --coverage)
endif()
