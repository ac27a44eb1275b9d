#include "core/memory/memory_part.h"

namespace quench {
namespace {
thread_local MemoryPart current_part = MemoryPart::other;
}  // namespace

MemoryPartScope::MemoryPartScope(MemoryPart part) noexcept : previous_(current_part) {
  current_part = part;
}
MemoryPartScope::~MemoryPartScope() {
  current_part = previous_;
}
MemoryPart MemoryPartScope::current() noexcept {
  return current_part;
}

}  // namespace quench
