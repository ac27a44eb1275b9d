#pragma once
// Part of a model's pass that allocates: splits the categories of MemoryStats further.

#include <array>
#include <cstdint>

#include "core/memory/storage.h"

namespace quench {

enum class MemoryPart : std::uint8_t {
  other,  // residual stream, norms, embedding, head
  attention,
  feed_forward,  // experts too
  logits,        // a teacher's too, and their gradients
};
inline constexpr int kMemoryPartCount = 4;

// Nestable, per thread. Default: other. A backward function runs in the part in which it was recorded (Tape::record).
class MemoryPartScope {
 public:
  explicit MemoryPartScope(MemoryPart part) noexcept;
  ~MemoryPartScope();
  MemoryPartScope(const MemoryPartScope&) = delete;
  MemoryPartScope& operator=(const MemoryPartScope&) = delete;
  [[nodiscard]] static MemoryPart current() noexcept;

 private:
  MemoryPart previous_;
};

// Bytes by category and part.
using PartBytes = std::array<std::array<std::int64_t, kMemoryPartCount>, kMemoryCategoryCount>;

}  // namespace quench
