#pragma once
// Devices, streams, events, and the small interface a back end implements for memory and ordering.
//
// A back end is a Backend object registered at link time plus any subset of kernel slots (core/device/kernel_slot.h).
// `meta` is the meta device: storage has addresses but no bytes and every kernel is a no-op, so that running the
// real model code on it measures the exact memory plan of a step (used by `quench estimate`).

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/system/check.h"

namespace quench {

enum class DeviceType : std::uint8_t { cpu, cuda, meta };
inline constexpr int kDeviceTypeCount = 3;

[[nodiscard]] std::string_view to_string(DeviceType type) noexcept;

struct Device {
  DeviceType type = DeviceType::cpu;
  std::int8_t index = 0;

  [[nodiscard]] bool is_cpu() const noexcept { return type == DeviceType::cpu; }
  [[nodiscard]] bool is_meta() const noexcept { return type == DeviceType::meta; }
  [[nodiscard]] std::string to_string() const;  // "cpu", "cuda:0", "meta"
  friend bool operator==(const Device&, const Device&) = default;
};

// An ordered queue of work on one device. On the CPU and meta devices work is done when the call returns.
struct Stream {
  Device device;
  void* handle = nullptr;  // cudaStream_t on CUDA; null is the device's default stream
  friend bool operator==(const Stream&, const Stream&) = default;
};

struct Event {
  Device device;
  void* handle = nullptr;
};

// Work that was captured instead of run; launching it runs it.
struct Graph {
  Device device;
  void* handle = nullptr;
};

struct DeviceMemory {
  std::int64_t free_bytes = 0;
  std::int64_t total_bytes = 0;
};

// Memory, streams, events and copies of one device type. Every call throws Error naming the device on failure.
class Backend {
 public:
  virtual ~Backend() = default;
  // Devices that this build can use.
  [[nodiscard]] virtual int device_count() const = 0;
  // Why there are none, in words for a user; empty where there are some.
  [[nodiscard]] virtual std::string unavailable_reason() const { return {}; }
  [[nodiscard]] virtual std::string device_name(Device device) const = 0;
  [[nodiscard]] virtual DeviceMemory memory(Device device) const = 0;

  // Raw segments for the caching allocator; at least 64-byte aligned. nullptr when the device is out of memory.
  virtual void* allocate(Device device, std::size_t bytes) = 0;
  // The same right behind what the last such call for the device gave, so that a block may lie across the two; whole
  // multiples of 2 MiB. nullptr also where the back end cannot do it.
  virtual void* allocate_behind(Device, std::size_t) { return nullptr; }
  // What one of the two gave, as a whole.
  virtual void deallocate(Device device, void* pointer, std::size_t bytes) noexcept = 0;

  // Page-locked host memory; nullptr when there is no more. Only for devices whose copies run asynchronously.
  virtual void* allocate_pinned(Device device, std::size_t bytes);

  virtual Stream create_stream(Device device) = 0;
  virtual void destroy_stream(Stream stream) noexcept = 0;
  virtual void synchronize(Stream stream) = 0;
  virtual Event create_event(Device device) = 0;
  // One that elapsed_milliseconds takes. On the CPU, where it is not needed, an event without time.
  virtual Event create_timing_event(Device device) { return create_event(device); }
  virtual void destroy_event(Event event) noexcept = 0;
  // Between the last records of two timing events, both done.
  [[nodiscard]] virtual double elapsed_milliseconds(Event, Event) { return 0; }
  virtual void record(Event event, Stream stream) = 0;
  virtual void wait(Stream stream, Event event) = 0;
  // True if all work before the event's last record is done.
  [[nodiscard]] virtual bool is_done(Event) { return true; }
  virtual void synchronize(Event event) = 0;

  // From here to end_capture, what the calling thread queues on a stream of create_stream is captured, not run. False
  // where the back end has no graphs; end_capture is not called then.
  virtual bool begin_capture(Stream) { return false; }
  // Throws failed where something among the work cannot be captured.
  virtual Graph end_capture(Stream) { return {}; }
  virtual void launch(Graph, Stream) {}
  virtual void destroy_graph(Graph) noexcept {}

  // Asynchronous with respect to the host on CUDA; ordered on `stream`. Either side may be host memory.
  virtual void copy(void* to, Device to_device, const void* from, Device from_device, std::size_t bytes,
                    Stream stream) = 0;
  virtual void fill_zero(void* pointer, std::size_t bytes, Stream stream) = 0;

  // Names the work that follows, up to range_end, in a profiler's timeline; nothing where there is no profiler.
  virtual void range_begin(std::string_view) {}
  virtual void range_end() {}
};

// The back end of a device type; throws unsupported ("this build has no CUDA back end") when none is linked in.
[[nodiscard]] Backend& backend(DeviceType type);
[[nodiscard]] bool has_backend(DeviceType type) noexcept;
// Called by a back end's object file during static initialisation. Keeps a pointer.
bool register_backend(DeviceType type, Backend* implementation) noexcept;

// The stream that ops of the calling thread use on a device; the default stream unless a StreamGuard is alive.
[[nodiscard]] Stream current_stream(Device device);

class StreamGuard {
 public:
  explicit StreamGuard(Stream stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Stream previous_;
};

// "cpu", "cuda", "cuda:1", "meta" or "auto": the first CUDA device when there is one and this build has kernels for it,
// else the CPU.
[[nodiscard]] Device parse_device(std::string_view text);

}  // namespace quench
