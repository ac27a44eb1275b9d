#include "apps/common.h"

#include <cstdio>

#include "core/device/device.h"
#include "core/memory/memory_limit.h"
#include "core/system/threads.h"

namespace quench {

void set_threads(int threads) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, threads >= 0 && threads <= kMaxThreads,
                  "--threads is {}, expected 0 (all) to {}", threads, kMaxThreads);
  set_thread_count(threads);
}

void limit_gpu_memory(const std::string& device, const std::string& size) {
  if (!size.empty()) limit_memory(parse_device(device), size, "--memory-limit");
}

void print_json(const Json& json) {
  std::printf("%s\n", json.dump(2).c_str());
}

}  // namespace quench
