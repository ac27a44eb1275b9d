#include "core/determinism.h"

#include <atomic>

namespace quench {
namespace {
constinit std::atomic<bool> setting{false};
}

void set_deterministic(bool on) noexcept {
  setting.store(on, std::memory_order_relaxed);
}

bool deterministic() noexcept {
  return setting.load(std::memory_order_relaxed);
}

}  // namespace quench
