# Libraries from the distribution; nothing is downloaded.

find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(dnnl REQUIRED)
find_package(PkgConfig REQUIRED)

pkg_check_modules(PCRE2_PC REQUIRED IMPORTED_TARGET libpcre2-8)
add_library(PCRE2::PCRE2 ALIAS PkgConfig::PCRE2_PC)
pkg_check_modules(SENTENCEPIECE_PC REQUIRED IMPORTED_TARGET sentencepiece)
add_library(SentencePiece::SentencePiece ALIAS PkgConfig::SENTENCEPIECE_PC)
pkg_check_modules(XXHASH_PC REQUIRED IMPORTED_TARGET libxxhash)
add_library(xxHash::xxHash ALIAS PkgConfig::XXHASH_PC)

if(QUENCH_TESTS AND NOT QUENCH_FUZZ)
  find_package(GTest REQUIRED)
endif()
if(QUENCH_BENCH AND NOT QUENCH_FUZZ)
  find_package(benchmark REQUIRED)
endif()

# CMake 3.25 does not know CUDA 13's C++20 flag.
if(QUENCH_CUDA)
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    set(QUENCH_HAVE_CUDA ON)
  endif()
endif()
message(STATUS "CUDA back end: ${QUENCH_HAVE_CUDA}")
