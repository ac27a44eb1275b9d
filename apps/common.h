#pragma once
// Threads, memory limit and JSON output of verbs.

#include <string>

#include "core/json/json.h"

namespace quench {

// 0: all available. Throws bad_config for implausible numbers.
void set_threads(int threads);

inline constexpr const char* kMemoryLimitHelp =
    "Limit of this process's GPU memory, such as 16GB or 12GiB, with CUDA context and libraries";
// --memory-limit; no-op for an empty size. Throws bad_config for the CPU.
void limit_gpu_memory(const std::string& device, const std::string& size);

// With a line break, to stdout.
void print_json(const Json& json);

}  // namespace quench
