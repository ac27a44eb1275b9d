// Meta device: addresses are never accessed; allocator and memory plan are real.

#include <atomic>
#include <cstdint>

#include "core/device/address_range.h"
#include "core/device/device.h"

namespace quench {
namespace {

class MetaBackend final : public Backend {
 public:
  [[nodiscard]] int device_count() const override { return 1; }
  [[nodiscard]] std::string device_name(Device) const override { return "meta device"; }
  [[nodiscard]] DeviceMemory memory(Device) const override { return {INT64_MAX, INT64_MAX}; }
  void* allocate(Device, std::size_t bytes) override {
    return reinterpret_cast<void*>(next_.fetch_add((bytes + kPage - 1) / kPage * kPage));
  }
  void* allocate_behind(Device, std::size_t bytes) override { return reinterpret_cast<void*>(growing_.take(bytes)); }
  void deallocate(Device, void* pointer, std::size_t bytes) noexcept override {
    growing_.give_back(reinterpret_cast<std::uintptr_t>(pointer), bytes);
  }
  Stream create_stream(Device device) override { return {device, nullptr}; }
  void destroy_stream(Stream) noexcept override {}
  void synchronize(Stream) override {}
  Event create_event(Device device) override { return {device, nullptr}; }
  void destroy_event(Event) noexcept override {}
  void record(Event, Stream) override {}
  void wait(Stream, Event) override {}
  void synchronize(Event) override {}
  void copy(void*, Device, const void*, Device, std::size_t, Stream) override {}
  void fill_zero(void*, std::size_t, Stream) override {}

 private:
  static constexpr std::uintptr_t kPage = std::uintptr_t{2} << 20;
  // Above user space: accidental accesses fault.
  std::atomic<std::uintptr_t> next_{std::uintptr_t{1} << 60};
  AddressRange growing_{std::uintptr_t{1} << 61, std::uintptr_t{1} << 62};
};

MetaBackend meta_backend;
[[maybe_unused]] const bool registered = register_backend(DeviceType::meta, &meta_backend);

}  // namespace
}  // namespace quench
