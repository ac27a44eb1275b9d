#pragma once
// Devices, streams, events, and the backend interface.
//
// A Backend is registered at link time, with kernel slots (kernel_slot.h). On the meta device, addresses have no bytes
// and kernels are no-ops: model code gives a step's exact memory plan (`quench estimate`).

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/system/check.h"

namespace quench {

// Kind of device; meta: shapes without bytes.
enum class DeviceType : std::uint8_t { cpu, cuda, meta };
// Number of device types.
inline constexpr int kDeviceTypeCount = 3;

[[nodiscard]] std::string_view to_string(DeviceType type) noexcept;

// Device of a process: type and index.
struct Device {
  DeviceType type = DeviceType::cpu;
  std::int8_t index = 0;

  [[nodiscard]] bool is_cpu() const noexcept { return type == DeviceType::cpu; }
  [[nodiscard]] bool is_meta() const noexcept { return type == DeviceType::meta; }
  [[nodiscard]] std::string to_string() const;  // "cpu", "cuda:0", "meta"
  friend bool operator==(const Device&, const Device&) = default;
};

// In-order queue; CPU and meta calls are synchronous.
struct Stream {
  Device device;
  void* handle = nullptr;  // cudaStream_t; null: default stream
  friend bool operator==(const Stream&, const Stream&) = default;
};

// Point in a stream's work. Owned by the code that created it (Backend::create_event).
struct Event {
  Device device;
  void* handle = nullptr;
};

// Captured work (Backend::end_capture). Owned by the code that captured it.
struct Graph {
  Device device;
  void* handle = nullptr;
};

// Compute capability of a GPU, 90 for 9.0; 0 for other devices.
struct ComputeCapability {
  int device = 0;  // for GEMM libraries
  int code = 0;    // that the loaded kernels were compiled for, at most `device`
};

// Memory of a device, all processes included.
struct DeviceMemory {
  std::int64_t free_bytes = 0;
  std::int64_t total_bytes = 0;
};

// Failures throw Error naming the device.
class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual int device_count() const = 0;
  // User-facing, empty with devices.
  [[nodiscard]] virtual std::string unavailable_reason() const { return {}; }
  [[nodiscard]] virtual std::string device_name(Device device) const = 0;
  [[nodiscard]] virtual DeviceMemory memory(Device device) const = 0;
  [[nodiscard]] virtual ComputeCapability compute_capability(Device) const { return {}; }

  // Allocator segment, at least 64-byte aligned; nullptr if out of memory.
  virtual void* allocate(Device device, std::size_t bytes) = 0;
  // Segment contiguous with this call's previous one (blocks may span both); multiples of 2 MiB. nullptr also if
  // unsupported.
  virtual void* allocate_behind(Device, std::size_t) { return nullptr; }
  virtual void deallocate(Device device, void* pointer, std::size_t bytes) noexcept = 0;

  // For asynchronous copies; nullptr if exhausted.
  virtual void* allocate_pinned(Device device, std::size_t bytes);

  virtual Stream create_stream(Device device) = 0;
  virtual void destroy_stream(Stream stream) noexcept = 0;
  virtual void synchronize(Stream stream) = 0;
  virtual Event create_event(Device device) = 0;
  virtual Event create_timing_event(Device device) { return create_event(device); }
  virtual void destroy_event(Event event) noexcept = 0;
  // Between two completed timing events; CPU: 0.
  [[nodiscard]] virtual double elapsed_milliseconds(Event, Event) { return 0; }
  virtual void record(Event event, Stream stream) = 0;
  virtual void wait(Stream stream, Event event) = 0;
  [[nodiscard]] virtual bool is_done(Event) { return true; }
  virtual void synchronize(Event event) = 0;

  // Captures the calling thread's work on a created stream until end_capture. False: unsupported; end_capture must not
  // be called.
  virtual bool begin_capture(Stream) { return false; }
  // Throws failed if an op cannot be captured.
  virtual Graph end_capture(Stream) { return {}; }
  virtual void launch(Graph, Stream) {}
  virtual void destroy_graph(Graph) noexcept {}

  // Ordered on `stream`, asynchronous on CUDA; also from and to host memory.
  virtual void copy(void* to, Device to_device, const void* from, Device from_device, std::size_t bytes,
                    Stream stream) = 0;
  virtual void fill_zero(void* pointer, std::size_t bytes, Stream stream) = 0;

  // No-op without a profiler.
  virtual void range_begin(std::string_view) {}
  virtual void range_end() {}
};

// Throws unsupported if not linked in.
[[nodiscard]] Backend& backend(DeviceType type);
// True if the program contains the device type's backend; a GPU may still be absent.
[[nodiscard]] bool has_backend(DeviceType type) noexcept;
// During static initialization; keeps the pointer.
bool register_backend(DeviceType type, Backend* implementation) noexcept;

// Calling thread's; the default stream without a StreamGuard.
[[nodiscard]] Stream current_stream(Device device);

// Scope in which `stream` is the calling thread's current stream of its device.
class StreamGuard {
 public:
  explicit StreamGuard(Stream stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Stream previous_;
};

// "cpu", "cuda", "cuda:1", "meta", "auto" (first CUDA device with kernels, else CPU).
[[nodiscard]] Device parse_device(std::string_view text);

}  // namespace quench
