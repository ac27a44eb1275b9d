# Language level, warnings and code generation shared by every target.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# Kernels raise the level themselves (QuenchModules.cmake); the rest gains nothing measurable from -O3.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

# Looked for once a build folder: a launcher that appears later would compile everything again.
if(NOT DEFINED QUENCH_CCACHE)
  find_program(QUENCH_CCACHE ccache)
endif()
if(QUENCH_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${QUENCH_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${QUENCH_CCACHE})
endif()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(QUENCH_X86 ON)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(QUENCH_AARCH64 ON)
endif()

add_library(quench_options INTERFACE)
target_include_directories(quench_options INTERFACE ${CMAKE_SOURCE_DIR})
set(warnings -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers -Werror)
# GCC 12 reports std::string concatenation (its bug 105651).
set(cxx_flags ${warnings} -fno-strict-aliasing $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
              # A product and a sum are fused only where the source says fma: conversions are bit-exact.
              -ffp-contract=off
              # As on x86-64; 64-bit ARM's own char is unsigned.
              $<$<NOT:$<BOOL:${QUENCH_X86}>>:-fsigned-char>)
# As for C++.
set(cuda_flags --Werror=all-warnings --fmad=false -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers
               $<$<NOT:$<BOOL:${QUENCH_X86}>>:-Xcompiler=-fsigned-char>)
target_compile_options(quench_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${cxx_flags}>"
                       "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_flags}>")
if(QUENCH_SANITIZE)
  # Code that no fuzz target is after compiles in half the time without (quench_module's NOT_FUZZED).
  set(fuzzed "$<NOT:$<BOOL:$<TARGET_PROPERTY:QUENCH_NOT_FUZZED>>>")
  target_compile_options(quench_options INTERFACE "$<${fuzzed}:-fsanitize=${QUENCH_SANITIZE};-fno-omit-frame-pointer;-g1>")
  if(QUENCH_FUZZ)  # AddressSanitizer finds these too, and code compiles in two thirds of the time without
    target_compile_options(quench_options INTERFACE
                           "$<${fuzzed}:-fno-sanitize=null,object-size,nonnull-attribute,returns-nonnull-attribute,vptr>")
  endif()
  target_link_options(quench_options INTERFACE -fsanitize=${QUENCH_SANITIZE})
endif()
if(QUENCH_COVERAGE)
  target_compile_options(quench_options INTERFACE --coverage -O1 -fprofile-update=atomic)
  target_link_options(quench_options INTERFACE --coverage)
endif()
