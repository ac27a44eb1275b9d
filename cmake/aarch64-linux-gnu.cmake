# Toolchain for 64-bit ARM: Debian's cross compiler, libraries in .deps/aarch64/root (scripts/setup.sh cross), tests under
# QEMU's user emulation.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH QUENCH_CROSS_SOURCE)
set(CMAKE_SYSROOT ${QUENCH_CROSS_SOURCE}/.deps/aarch64/root)
if(NOT EXISTS ${CMAKE_SYSROOT}/packages)
  message(FATAL_ERROR "no libraries for aarch64 in ${CMAKE_SYSROOT}: run scripts/setup.sh cross")
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)
set(ENV{PKG_CONFIG_PATH} "")
# nvcc of this machine and the runtime of ARM hosts.
set(cuda ${QUENCH_CROSS_SOURCE}/.deps/aarch64/cuda)
if(EXISTS ${cuda}/release)
  set(CUDAToolkit_ROOT ${cuda})
  set(CMAKE_CUDA_COMPILER ${cuda}/bin/nvcc)
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  # Headers of C come after those of C++, as the compiler finds them: named by -isystem they would come first.
  set(CMAKE_CUDA_FLAGS_INIT -Xcompiler=--sysroot=${CMAKE_SYSROOT})
  list(APPEND CMAKE_FIND_ROOT_PATH ${cuda}/targets/sbsa-linux ${QUENCH_CROSS_SOURCE}/.deps)
endif()
set(XGRAMMAR_PATH ${QUENCH_CROSS_SOURCE}/.deps/aarch64/xgrammar CACHE PATH "Folder with cpp and include of XGrammar")
set(ARROW_PATH ${QUENCH_CROSS_SOURCE}/.deps/aarch64/arrow CACHE PATH "Folder with include and lib of Apache Arrow")

# By environment variables, for programs that the program starts too. 64 GiB of addresses: QEMU would keep 16 GiB of tables for
# the 4 TiB that the allocator reserves.
set(CMAKE_CROSSCOMPILING_EMULATOR env;QEMU_LD_PREFIX=${CMAKE_SYSROOT};QEMU_RESERVED_VA=0x1000000000;qemu-aarch64)
