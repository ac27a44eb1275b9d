#include "core/device/device.h"

#include <charconv>

#include "core/device/cpu_level.h"
#include "core/device/kernel_slot.h"

namespace quench {
namespace {

std::array<Backend*, kDeviceTypeCount>& backends() noexcept {
  static std::array<Backend*, kDeviceTypeCount> table{};
  return table;
}

constinit std::array<int, kDeviceTypeCount> kernel_counts{};

// Per type; a null entry is the default stream.
constexpr int kMaxDevices = 16;
constexpr std::string_view kNoCuda =
    "this build has no CUDA back end; build with the CUDA toolkit installed, or use --device cpu";
thread_local std::array<std::array<void*, kMaxDevices>, kDeviceTypeCount> current_handles{};

void*& current_handle(Device device) {
  QUENCH_CHECK(device.index >= 0 && device.index < kMaxDevices, "device index {} outside 0..{}", int{device.index},
               kMaxDevices - 1);
  return current_handles[static_cast<std::size_t>(device.type)][static_cast<std::size_t>(device.index)];
}

}  // namespace

std::string_view to_string(DeviceType type) noexcept {
  switch (type) {
    case DeviceType::cpu: return "cpu";
    case DeviceType::cuda: return "cuda";
    case DeviceType::meta: return "meta";
  }
  return "unknown";
}

std::string Device::to_string() const {
  std::string text(quench::to_string(type));
  if (type == DeviceType::cuda) text += ":" + std::to_string(index);
  return text;
}

void* Backend::allocate_pinned(Device device, std::size_t) {
  QUENCH_FAIL(ErrorCode::unsupported, "{} has no pinned host memory", device.to_string());
}

Backend& backend(DeviceType type) {
  Backend* implementation = backends()[static_cast<std::size_t>(type)];
  QUENCH_CHECK_AS(ErrorCode::unsupported, implementation != nullptr, "{}",
                  type == DeviceType::cuda ? kNoCuda : "this build has no such back end");
  return *implementation;
}

bool has_backend(DeviceType type) noexcept {
  return backends()[static_cast<std::size_t>(type)] != nullptr;
}

bool register_backend(DeviceType type, Backend* implementation) noexcept {
  backends()[static_cast<std::size_t>(type)] = implementation;
  return true;
}

Stream current_stream(Device device) {
  return Stream{device, current_handle(device)};
}

StreamGuard::StreamGuard(Stream stream) : previous_(current_stream(stream.device)) {
  current_handle(stream.device) = stream.handle;
}

StreamGuard::~StreamGuard() {
  current_handle(previous_.device) = previous_.handle;
}

Device parse_device(std::string_view text) {
  if (text == "cpu") return {};
  if (text == "meta") return {DeviceType::meta, 0};
  if (text == "auto") {
    const bool gpu = kernel_count(DeviceType::cuda) > 0 && has_backend(DeviceType::cuda) &&
                     backend(DeviceType::cuda).device_count() > 0;
    return gpu ? Device{DeviceType::cuda, 0} : Device{};
  }
  if (text.starts_with("cuda")) {
    int index = 0;
    const std::string_view rest = text.substr(4);
    bool ok = rest.empty();
    if (rest.size() > 1 && rest[0] == ':') {
      const auto [end, error] = std::from_chars(rest.data() + 1, rest.data() + rest.size(), index);
      ok = error == std::errc{} && end == rest.data() + rest.size() && index >= 0 && index < kMaxDevices;
    }
    if (ok) {
      QUENCH_CHECK_AS(ErrorCode::bad_config, has_backend(DeviceType::cuda), "device '{}': {}", text, kNoCuda);
      const Backend& cuda = backend(DeviceType::cuda);
      const int count = cuda.device_count();
      QUENCH_CHECK_AS(ErrorCode::bad_config, count > 0, "device '{}': {}; use --device cpu", text,
                      cuda.unavailable_reason());
      QUENCH_CHECK_AS(ErrorCode::bad_config, index < count,
                      "device '{}': {} CUDA device(s) of this machine can be used", text, count);
      return {DeviceType::cuda, static_cast<std::int8_t>(index)};
    }
  }
  QUENCH_FAIL(ErrorCode::bad_config, "device '{}' is unknown; use auto, cpu, cuda or cuda:N", text);
}

int kernel_count(DeviceType type) noexcept {
  return kernel_counts[static_cast<std::size_t>(type)];
}
void count_kernel(DeviceType type) noexcept {
  ++kernel_counts[static_cast<std::size_t>(type)];
}

void fail_missing_kernel(std::string_view op, DeviceType type) {
  if (type == DeviceType::cpu && !cpu_supports_level(kLeastCpuLevel))
    QUENCH_FAIL(ErrorCode::unsupported, "this processor lacks {}, which the CPU kernels need (op {})",
                kLeastCpuInstructions, op);
  QUENCH_FAIL(ErrorCode::unsupported, "op {} has no {} kernel in this build", op,
              type == DeviceType::cuda ? "CUDA" : to_string(type));
}

}  // namespace quench
