// Host backend: anonymous mappings with transparent huge pages; synchronous streams.

#include <sys/mman.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>

#include "core/device/address_range.h"
#include "core/device/device.h"
#include "core/device/processor_name.h"

namespace quench {
namespace {

// Without swapping (MemAvailable); sysinfo without /proc.
std::int64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::string unit;
  std::int64_t kib = 0;
  while (file >> key >> kib >> unit)
    if (key == "MemAvailable:") return kib * 1024;
  struct sysinfo info {};
  return ::sysinfo(&info) == 0 ? static_cast<std::int64_t>(info.freeram) * info.mem_unit : 0;
}

// cgroup limit, or the machine's memory.
std::int64_t total_bytes() {
  struct sysinfo info {};
  std::int64_t total = ::sysinfo(&info) == 0 ? static_cast<std::int64_t>(info.totalram) * info.mem_unit : 0;
  std::ifstream limit("/sys/fs/cgroup/memory.max");
  std::int64_t bytes = 0;
  if (limit >> bytes && bytes > 0 && bytes < total) total = bytes;
  return total;
}

class HostBackend final : public Backend {
 public:
  [[nodiscard]] int device_count() const override { return 1; }
  [[nodiscard]] std::string device_name(Device) const override {
    std::ifstream file("/proc/cpuinfo");
    return processor_name(file);
  }
  [[nodiscard]] DeviceMemory memory(Device) const override {
    const std::int64_t total = total_bytes();
    return {std::min(available_bytes(), total), total};
  }

  void* allocate(Device, std::size_t bytes) override {
    // Aligned to 2 MiB, for huge pages.
    constexpr std::size_t kHuge = std::size_t{2} << 20;
    void* raw =
        ::mmap(nullptr, bytes + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) return nullptr;
    const auto start = reinterpret_cast<std::uintptr_t>(raw);
    const std::uintptr_t aligned = (start + kHuge - 1) / kHuge * kHuge;
    const std::uintptr_t end = start + bytes + kHuge;
    if (aligned > start) ::munmap(raw, aligned - start);
    if (end > aligned + bytes) ::munmap(reinterpret_cast<void*>(aligned + bytes), end - (aligned + bytes));
    auto* pointer = reinterpret_cast<void*>(aligned);
    if (bytes >= kHuge) ::madvise(pointer, bytes, MADV_HUGEPAGE);
    return pointer;
  }

  void* allocate_behind(Device, std::size_t bytes) override {
    AddressRange& range = growing_range();
    const std::uintptr_t address = range.take(bytes);
    if (address == 0) return nullptr;
    auto* pointer = reinterpret_cast<void*>(address);
    if (::mprotect(pointer, bytes, PROT_READ | PROT_WRITE) != 0) {
      range.give_back(address, bytes);
      return nullptr;
    }
    ::madvise(pointer, bytes, MADV_HUGEPAGE);
    return pointer;
  }

  void deallocate(Device, void* pointer, std::size_t bytes) noexcept override {
    AddressRange& range = growing_range();
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    if (range_begin_ == 0 || address < range_begin_ || address >= range_begin_ + kRange) {
      ::munmap(pointer, bytes);
      return;
    }
    // The address range stays reserved.
    ::mmap(pointer, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    range.give_back(address, bytes);
  }

  Stream create_stream(Device device) override { return {device, nullptr}; }
  void destroy_stream(Stream) noexcept override {}
  void synchronize(Stream) override {}
  Event create_event(Device device) override { return {device, nullptr}; }
  void destroy_event(Event) noexcept override {}
  void record(Event, Stream) override {}
  void wait(Stream, Event) override {}
  void synchronize(Event) override {}

  void copy(void* to, Device, const void* from, Device, std::size_t bytes, Stream) override {
    std::memcpy(to, from, bytes);
  }
  void fill_zero(void* pointer, std::size_t bytes, Stream) override {
    auto* start = static_cast<char*>(pointer);
    constexpr std::size_t kPiece = std::size_t{1} << 20;
    const auto pieces = static_cast<std::int64_t>((bytes + kPiece - 1) / kPiece);
#pragma omp parallel for schedule(static) if (pieces > 1)
    for (std::int64_t i = 0; i < pieces; ++i) {
      const std::size_t begin = static_cast<std::size_t>(i) * kPiece;
      std::memset(start + begin, 0, std::min(kPiece, bytes - begin));
    }
  }

 private:
  // Reserved once; empty under an address limit (ulimit -v).
  AddressRange& growing_range() {
    std::call_once(reserved_, [this] {
      constexpr std::size_t kHuge = std::size_t{2} << 20;
      void* raw = ::mmap(nullptr, kRange + kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (raw == MAP_FAILED) {
        range_.emplace(0, 0);
        return;
      }
      range_begin_ = (reinterpret_cast<std::uintptr_t>(raw) + kHuge - 1) / kHuge * kHuge;
      range_.emplace(range_begin_, range_begin_ + kRange);
    });
    return *range_;
  }

  static constexpr std::size_t kRange = std::size_t{4} << 40;
  std::once_flag reserved_;
  std::uintptr_t range_begin_ = 0;
  std::optional<AddressRange> range_;
};

HostBackend host_backend;
[[maybe_unused]] const bool registered = register_backend(DeviceType::cpu, &host_backend);

}  // namespace
}  // namespace quench
