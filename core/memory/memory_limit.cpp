#include "core/memory/memory_limit.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "core/memory/allocator.h"

namespace quench {
namespace {

constexpr double kLeastBytes = 0x1p20;
constexpr double kMostBytes = 0x1p60;

}  // namespace

std::optional<std::int64_t> parse_memory_size(std::string_view text) noexcept {
  static constexpr std::array<std::pair<std::string_view, double>, 4> kUnits{
      {{"MB", 1e6}, {"GB", 1e9}, {"MiB", 0x1p20}, {"GiB", 0x1p30}}};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc()) return std::nullopt;
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const auto& [name, bytes] : kUnits)
    if (unit == name) {
      const double size = number * bytes;
      if (!(size >= kLeastBytes && size <= kMostBytes)) return std::nullopt;
      return static_cast<std::int64_t>(size);
    }
  return std::nullopt;
}

std::int64_t require_memory_size(std::string_view text, std::string_view option) {
  const auto bytes = parse_memory_size(text);
  QUENCH_CHECK_AS(ErrorCode::bad_config, bytes.has_value(),
                  "{} '{}' is not a memory size of 1 MiB or more; expected a number with MB, GB, MiB or GiB, such as "
                  "24GB",
                  option, text);
  return *bytes;
}

std::int64_t outside_bytes(const DeviceMemory& memory, std::int64_t reserved) noexcept {
  return std::clamp<std::int64_t>(memory.total_bytes - memory.free_bytes - reserved, 0, kMostOutsideBytes);
}

DeviceMemory within_limit(const DeviceMemory& memory, std::int64_t reserved, std::int64_t limit) noexcept {
  if (limit == 0) return memory;
  const std::int64_t free = std::max<std::int64_t>(0, limit - kMostOutsideBytes - reserved);
  return {std::min(memory.free_bytes, free), std::min(memory.total_bytes, limit)};
}

void limit_memory(Device device, std::string_view size, std::string_view option) {
  if (size.empty()) {
    if (device.type == DeviceType::cuda) Allocator::of(device).set_limit(0);
    return;
  }
  const std::int64_t bytes = require_memory_size(size, option);
  QUENCH_CHECK_AS(ErrorCode::bad_config, device.type == DeviceType::cuda,
                  "{} limits GPU memory, and the device is {}; omit it (host memory: ulimit -v, or a cgroup)", option,
                  device.to_string());
  QUENCH_CHECK_AS(ErrorCode::bad_config, bytes > kMostOutsideBytes,
                  "{} '{}' leaves no memory: {} MiB of it are set aside for the CUDA context and libraries", option,
                  size, kMostOutsideBytes >> 20);
  Allocator::of(device).set_limit(bytes);
}

}  // namespace quench
