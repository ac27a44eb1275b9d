#include "core/memory/pinned_memory.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace quench {
namespace {

constexpr std::size_t kGranularity = std::size_t{64} << 10;

struct PinnedBlock {
  void* pointer;
  std::size_t bytes;
  Event released;  // completed once the block may be rewritten
};

}  // namespace

struct PinnedMemory::State {
  std::mutex mutex;
  std::vector<PinnedBlock> free;
  std::unordered_map<void*, PinnedBlock> used;
};

PinnedMemory::PinnedMemory(Device device) : device_(device), state_(new State) {}

PinnedMemory& PinnedMemory::of(Device device) {
  static std::mutex mutex;
  static auto& table = *new std::map<std::pair<DeviceType, int>, std::unique_ptr<PinnedMemory>>;
  const std::lock_guard lock(mutex);
  auto& slot = table[{device.type, device.index}];
  if (!slot) slot = std::make_unique<PinnedMemory>(device);
  return *slot;
}

void* PinnedMemory::allocate(std::size_t bytes) {
  const std::size_t size = (std::max<std::size_t>(bytes, 1) + kGranularity - 1) / kGranularity * kGranularity;
  Backend& gpu = backend(device_.type);
  std::unique_lock lock(state_->mutex);
  auto best = state_->free.end();
  for (auto it = state_->free.begin(); it != state_->free.end(); ++it)
    if (it->bytes >= size && it->bytes <= 2 * size && (best == state_->free.end() || it->bytes < best->bytes) &&
        gpu.is_done(it->released))
      best = it;
  if (best != state_->free.end()) {
    const PinnedBlock block = *best;
    state_->free.erase(best);
    state_->used.emplace(block.pointer, block);
    return block.pointer;
  }
  lock.unlock();  // pinning is slow
  void* pointer = gpu.allocate_pinned(device_, size);
  QUENCH_CHECK_AS(ErrorCode::out_of_memory, pointer != nullptr,
                  "{} bytes of pinned host memory for {} do not fit; lower training.offload_layers, "
                  "optimizer.offload_ratio or data.prefetch, or set checkpoint.async or the offload of a second model "
                  "(section of the training objective) to false",
                  size, device_.to_string());
  lock.lock();
  state_->used.emplace(pointer, PinnedBlock{pointer, size, gpu.create_event(device_)});
  return pointer;
}

void PinnedMemory::release(void* pointer) noexcept {
  const std::lock_guard lock(state_->mutex);
  const auto it = state_->used.find(pointer);
  if (it == state_->used.end()) return;
  try {
    backend(device_.type).record(it->second.released, current_stream(device_));
    state_->free.push_back(it->second);
  } catch (...) {
    // Device lost: the block is not reused.
  }
  state_->used.erase(it);
}

}  // namespace quench
