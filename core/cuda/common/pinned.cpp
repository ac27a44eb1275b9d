#include "core/cuda/common/pinned.h"

#include <cuda_runtime.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "core/cuda/common/cuda_error.h"

// Linux 5.14; absent from older headers.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace quench::cuda {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kLarge = 8 * kHugePage;
constexpr unsigned kMaxThreads = 8;

std::size_t rounded_up(std::size_t bytes) {
  return (bytes + kHugePage - 1) / kHugePage * kHugePage;
}

// Address space aligned to a huge page; MAP_FAILED if exhausted.
void* map_aligned(std::size_t bytes) {
  void* const whole = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (whole == MAP_FAILED) return whole;
  auto* const begin = static_cast<std::byte*>(whole);
  const std::size_t skipped = rounded_up(reinterpret_cast<std::size_t>(begin)) - reinterpret_cast<std::size_t>(begin);
  if (skipped > 0) munmap(begin, skipped);
  munmap(begin + skipped + bytes, kHugePage - skipped);
  return begin + skipped;
}

void prefer_this_node(void* pointer, std::size_t bytes) {
  unsigned cpu = 0, node = 0;
  if (syscall(SYS_getcpu, &cpu, &node, nullptr) != 0 || node >= 64) return;
  const unsigned long mask = 1UL << node;
  syscall(SYS_mbind, pointer, bytes, MPOL_PREFERRED, &mask, 64UL, 0U);
}

// False: no memory, or a kernel before 5.14.
bool populate(std::byte* pointer, std::size_t bytes) {
  const unsigned count = std::clamp(std::thread::hardware_concurrency(), 1u, kMaxThreads);
  const std::size_t pages = bytes / kHugePage;
  std::atomic<bool> done = true;
  const auto part = [&](unsigned index) {
    const std::size_t begin = pages * index / count * kHugePage, end = pages * (index + 1) / count * kHugePage;
    if (begin < end && madvise(pointer + begin, end - begin, MADV_POPULATE_WRITE) != 0) done = false;
  };
  std::vector<std::thread> threads;
  try {
    for (unsigned i = 1; i < count; ++i) threads.emplace_back(part, i);
  } catch (const std::system_error&) {  // no further threads
    done = false;
  }
  part(0);
  for (std::thread& thread : threads) thread.join();
  return done;
}

// nullptr: not possible here.
void* allocate_large(std::size_t bytes) {
  const std::size_t size = rounded_up(bytes);
  void* const pointer = map_aligned(size);
  if (pointer == MAP_FAILED) return nullptr;
  madvise(pointer, size, MADV_HUGEPAGE);
  prefer_this_node(pointer, size);
  if (populate(static_cast<std::byte*>(pointer), size) &&
      cudaHostRegister(pointer, size, cudaHostRegisterDefault) == cudaSuccess)
    return pointer;
  cudaGetLastError();  // clears the non-sticky error
  munmap(pointer, size);
  return nullptr;
}

}  // namespace

void* allocate_pinned(Device device, std::size_t bytes) {
  const DeviceGuard guard(device);
  void* pointer = bytes >= kLarge ? allocate_large(bytes) : nullptr;
  if (pointer != nullptr) return pointer;
  const cudaError_t status = cudaMallocHost(&pointer, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check(status, "cudaMallocHost", device);
  return pointer;
}

}  // namespace quench::cuda
