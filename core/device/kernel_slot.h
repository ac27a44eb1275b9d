#pragma once
// One slot per op and device type, filled by back ends' object files during static initialisation.
//
// A back end may fill a slot several times for different instruction sets (core/cpu is compiled once per x86-64
// level); the highest level the machine supports wins. An empty slot throws "op x has no CUDA kernel in this build".
// On the meta device every op is a no-op: shapes and memory are real, values are not.

#include <array>

#include "core/device/device.h"
#include "core/device/op_profile.h"

namespace quench {

// True if this machine can run code of the given level: 0 = any, 3 = x86-64-v3 (AVX2), 4 = x86-64-v4 (AVX-512),
// 5 = that with bf16 instructions. QUENCH_CPU_LEVEL in the environment sets an upper bound.
[[nodiscard]] bool cpu_supports_level(int level) noexcept;

// How many slots the back ends linked into this program have filled for a device type.
[[nodiscard]] int kernel_count(DeviceType type) noexcept;
void count_kernel(DeviceType type) noexcept;

[[noreturn]] void fail_missing_kernel(std::string_view op, DeviceType type);

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

  // For back ends only; returns true so that it can initialise a namespace-scope constant.
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
  // What a profile calls the call: an op may say more than its name (`std::string op_label(const Args&)`).
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

// Registers a CPU kernel at the level this object file is compiled for.
#ifndef QUENCH_CPU_LEVEL
#define QUENCH_CPU_LEVEL 0
#endif
#define QUENCH_CPU_KERNEL(slot, function)             \
  [[maybe_unused]] const bool function##_registered = \
      (slot).fill(::quench::DeviceType::cpu, &(function), QUENCH_CPU_LEVEL)
