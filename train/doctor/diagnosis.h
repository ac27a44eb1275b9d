#pragma once
// State of the machine for `quench doctor`.

#include <optional>
#include <string>
#include <vector>

#include "core/device/library_versions.h"
#include "core/json/json.h"
#include "core/self_test/self_test.h"
#include "distributed/gpu_links.h"

namespace quench {

struct RecipePath {
  std::string recipe;
  std::string path;  // "native", "fallback", "emulated" (recipes/float8/hardware.h)
};
// In the order of the recipe table.
[[nodiscard]] std::vector<RecipePath> recipe_paths(Device device);

struct DeviceDiagnosis {
  Device device;
  std::string name;
  ComputeCapability capability;
  std::int64_t memory = 0;  // bytes
  std::vector<RecipePath> recipes;
  SelfTestReport self_test;
};

struct Diagnosis {
  std::string no_gpu;  // reason; empty with a GPU
  std::vector<LibraryVersion> libraries;
  std::vector<DeviceDiagnosis> devices;        // GPUs, else the CPU
  std::optional<distributed::GpuLinks> links;  // with several GPUs
  KernelFamilySet disabled;                    // by QUENCH_DISABLE_KERNELS

  [[nodiscard]] bool healthy() const;  // no failed family, no NCCL problem
};

// Runs the self-test on every GPU, or on the CPU without one, and stores GPUs' verdicts for check_kernels().
[[nodiscard]] Diagnosis diagnose();

[[nodiscard]] std::string to_string(const Diagnosis& diagnosis);
// For bug reports: without user names, and of paths only the names of libraries.
[[nodiscard]] Json to_json(const Diagnosis& diagnosis);

// `text` without the words that hold a slash ("<path>/libcudnn.so.9" for libraries) and without the user's name.
[[nodiscard]] std::string without_paths(std::string_view text);

}  // namespace quench
