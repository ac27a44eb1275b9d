#include "core/device/determinism.h"

#include <atomic>

namespace quench {
namespace {
std::atomic<bool> deterministic_on{false}, batch_invariant_on{false};
}

void set_deterministic(bool on) noexcept {
  deterministic_on.store(on, std::memory_order_relaxed);
}
bool deterministic() noexcept {
  return deterministic_on.load(std::memory_order_relaxed);
}

void set_batch_invariant(bool on) noexcept {
  batch_invariant_on.store(on, std::memory_order_relaxed);
}
bool batch_invariant() noexcept {
  return batch_invariant_on.load(std::memory_order_relaxed);
}

}  // namespace quench
