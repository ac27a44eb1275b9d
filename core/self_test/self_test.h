#pragma once
// Self-test of a device's kernels: the CPU against stored vectors, a GPU against the CPU.

#include <string>
#include <vector>

#include "core/device/device.h"
#include "core/device/kernel_families.h"

namespace quench {

enum class FamilyStatus : std::uint8_t {
  passed,
  failed,
  not_used,  // dispatch on this device does not choose the family
};
[[nodiscard]] std::string_view to_string(FamilyStatus status) noexcept;

struct FamilyResult {
  std::string name;
  FamilyStatus status = FamilyStatus::passed;
  std::string detail;  // reason of a failure
  friend bool operator==(const FamilyResult&, const FamilyResult&) = default;
};

struct SelfTestReport {
  std::vector<FamilyResult> families;
  double seconds = 0;
};

// Every family, also those switched off. Errors of kernels are failures. Leaves no memory allocated.
[[nodiscard]] SelfTestReport run_self_test(Device device);

[[nodiscard]] std::size_t count(const SelfTestReport& report, FamilyStatus status) noexcept;
// Failed families with a fallback.
[[nodiscard]] KernelFamilySet replaceable_failures(const SelfTestReport& report);
// "rms_norm (relative error 0.3), rope (...)": failed families without a fallback; empty: none.
[[nodiscard]] std::string fatal_failures(const SelfTestReport& report);

}  // namespace quench
