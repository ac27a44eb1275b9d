#pragma once
// One kernel per op and device type, filled during static initialization.
//
// CPU: the highest supported level (cpu_level.h) wins. An empty slot throws unsupported; meta device: no-op.

#include <array>

#include "core/device/device.h"
#include "core/device/op_profile.h"

namespace quench {

// Levels of this architecture (cpu_level.h), 0: any processor; at most the environment's QUENCH_CPU_LEVEL. False for
// the levels of others.
[[nodiscard]] bool cpu_supports_level(int level) noexcept;

// Number of slots with a kernel for the device type.
[[nodiscard]] int kernel_count(DeviceType type) noexcept;
// Called by KernelSlot::fill().
void count_kernel(DeviceType type) noexcept;

// Throws unsupported naming op and device type.
[[noreturn]] void fail_missing_kernel(std::string_view op, DeviceType type);

// Kernels of one op, by device type. A call on the meta device does nothing.
template <class Args>
class KernelSlot {
 public:
  using Function = void (*)(const Args&);

  explicit constexpr KernelSlot(std::string_view op) noexcept : op_(op) {}

  void operator()(DeviceType type, const Args& args) const {
    if (type == DeviceType::meta) return;
    const Function function = functions_[static_cast<std::size_t>(type)];
    if (function == nullptr) [[unlikely]]
      fail_missing_kernel(op_, type);
    if (OpProfile::active()) [[unlikely]] {
      const OpProfile::Call call(label(args));
      return function(args);
    }
    function(args);
  }

  // For backends; always true, to initialize a namespace-scope constant.
  bool fill(DeviceType type, Function function, int level = 0) noexcept {
    const auto i = static_cast<std::size_t>(type);
    if (functions_[i] == nullptr) count_kernel(type);
    if (level >= levels_[i] && (type != DeviceType::cpu || cpu_supports_level(level))) {
      functions_[i] = function;
      levels_[i] = level;
    }
    return true;
  }

  [[nodiscard]] bool filled(DeviceType type) const noexcept {
    return functions_[static_cast<std::size_t>(type)] != nullptr;
  }
  [[nodiscard]] std::string_view op() const noexcept { return op_; }

 private:
  // op_label(args), else the op's name.
  [[nodiscard]] std::string label(const Args& args) const {
    if constexpr (requires { op_label(args); })
      return op_label(args);
    else
      return std::string(op_);
  }

  std::string_view op_;
  std::array<Function, kDeviceTypeCount> functions_{};
  std::array<int, kDeviceTypeCount> levels_{};
};

}  // namespace quench

#ifndef QUENCH_CPU_LEVEL
// Level of the file's kernels; set by the build for core/cpu/.
#define QUENCH_CPU_LEVEL 0
#endif
// Registers a CPU kernel, at namespace scope.
#define QUENCH_CPU_KERNEL(slot, function)             \
  [[maybe_unused]] const bool function##_registered = \
      (slot).fill(::quench::DeviceType::cpu, &(function), QUENCH_CPU_LEVEL)
