#include "core/cuda/common/growing_memory.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>

#include "core/cuda/common/cuda_error.h"
#include "core/cuda/common/toolkit.h"
#include "core/device/address_range.h"

namespace quench::cuda {
namespace {

// Virtual addresses are free: so large that fragmentation does not matter.
constexpr std::size_t kRangeOverMemory = 16;
constexpr std::size_t kPiece = std::size_t{2} << 20;

struct Driver {
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  bool complete = true;

  Driver() {
    find("cuMemAddressReserve", reserve);
    find("cuMemCreate", create);
    find("cuMemMap", map);
    find("cuMemSetAccess", set_access);
    find("cuMemUnmap", unmap);
    find("cuMemRelease", release);
    find("cuMemGetAllocationGranularity", granularity);
  }

  template <class Function>
  void find(const char* name, Function& function) {
    void* entry = driver_entry(name);
    if (entry == nullptr) complete = false;
    function = reinterpret_cast<Function>(entry);
  }
};

const Driver& driver() {
  static const Driver found;
  return found;
}

}  // namespace

struct GrowingMemory::State {
  Device device;
  CUmemAllocationProp properties{};
  CUmemAccessDesc access{};
  std::uintptr_t begin = 0, end = 0;
  std::unique_ptr<AddressRange> range;  // nullptr: unsupported
  std::mutex mutex;
  std::map<std::uintptr_t, CUmemGenericAllocationHandle> pieces;
};

GrowingMemory::GrowingMemory(Device device) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.device = device;
  if (!driver().complete) return;
  const DeviceGuard guard(device);
  std::size_t free = 0, total = 0, granularity = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return;  // reported by the next allocation
  s.properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  s.properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device.index};
  s.access = {s.properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  if (driver().granularity(&granularity, &s.properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS ||
      kPiece % granularity != 0)
    return;
  const std::size_t bytes = total / kPiece * kPiece * kRangeOverMemory;
  CUdeviceptr first = 0;
  if (driver().reserve(&first, bytes, kPiece, 0, 0) != CUDA_SUCCESS) return;
  s.begin = first;
  s.end = first + bytes;
  s.range = std::make_unique<AddressRange>(s.begin, s.end);
}

GrowingMemory::~GrowingMemory() = default;

GrowingMemory& GrowingMemory::of(Device device) {
  static std::mutex mutex;
  // Never destroyed: static tensors may be released later.
  static auto& table = *new std::map<int, std::unique_ptr<GrowingMemory>>;
  const std::lock_guard lock(mutex);
  auto& slot = table[device.index];
  if (!slot) slot = std::make_unique<GrowingMemory>(device);
  return *slot;
}

void* GrowingMemory::append(std::size_t bytes) {
  State& s = *state_;
  if (!s.range || bytes % kPiece != 0) return nullptr;
  const DeviceGuard guard(s.device);
  CUmemGenericAllocationHandle handle{};
  if (driver().create(&handle, bytes, &s.properties, 0) != CUDA_SUCCESS) return nullptr;  // out of memory
  const std::uintptr_t address = s.range->take(bytes);
  if (address == 0 || driver().map(address, bytes, 0, handle, 0) != CUDA_SUCCESS) {
    if (address != 0) s.range->give_back(address, bytes);
    driver().release(handle);
    return nullptr;
  }
  if (driver().set_access(address, bytes, &s.access, 1) != CUDA_SUCCESS) {
    driver().unmap(address, bytes);
    s.range->give_back(address, bytes);
    driver().release(handle);
    return nullptr;
  }
  const std::lock_guard lock(s.mutex);
  s.pieces.emplace(address, handle);
  return reinterpret_cast<void*>(address);
}

bool GrowingMemory::remove(void* pointer, std::size_t bytes) noexcept {
  State& s = *state_;
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (!s.range || address < s.begin || address >= s.end) return false;
  const std::lock_guard lock(s.mutex);
  const auto it = s.pieces.find(address);
  if (it == s.pieces.end()) return false;
  driver().unmap(address, bytes);
  driver().release(it->second);
  s.pieces.erase(it);
  s.range->give_back(address, bytes);
  return true;
}

}  // namespace quench::cuda
