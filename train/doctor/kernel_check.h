#pragma once
// Self-test before a GPU's first use (core/self_test).

#include <filesystem>
#include <string>

#include "core/device/library_versions.h"
#include "core/json/json.h"
#include "core/self_test/self_test.h"

namespace quench {

// Once per process and device, before its first kernels; no-op for other devices than GPUs and with
// QUENCH_SELF_TEST=0. Takes the report of an equal program, device and libraries from the user's cache folder, else
// runs the self-test and stores it. Failed families are switched off, with a warning each; throws failed for those
// without a fallback. Also throws bad_config for unknown names in QUENCH_DISABLE_KERNELS.
void check_kernels(Device device);

// Parts of check_kernels(), for `quench doctor` and tests.
struct KernelVerdict {
  SelfTestReport report;
  bool cached = false;
};
// All that results of the self-test depend on.
[[nodiscard]] Json verdict_key(Device device, const std::vector<LibraryVersion>& libraries);
// `run`: in place of run_self_test(). No cache with broken families.
[[nodiscard]] KernelVerdict kernel_verdict(Device device, const std::filesystem::path& folder,
                                           SelfTestReport (*run)(Device) = run_self_test);
// "kernel family X computes wrong results on GPU (...): Y run in its place", one line per failed family with a
// fallback.
[[nodiscard]] std::vector<std::string> replacement_lines(const SelfTestReport& report, const std::string& device_name);
// Switches off and warns; throws.
void apply_verdict(const SelfTestReport& report, const std::string& device_name);

}  // namespace quench
