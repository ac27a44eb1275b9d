#include "core/memory/storage.h"

#include "core/memory/allocator.h"
#include "core/memory/pinned_memory.h"

namespace quench {
namespace {
thread_local MemoryCategory current_category = MemoryCategory::other;
thread_local GraphMemory* current_kept = nullptr;
}  // namespace

std::string_view to_string(MemoryCategory category) noexcept {
  switch (category) {
    case MemoryCategory::parameters: return "parameters";
    case MemoryCategory::gradients: return "gradients";
    case MemoryCategory::optimizer: return "optimizer";
    case MemoryCategory::activations: return "activations";
    case MemoryCategory::workspace: return "workspace";
    case MemoryCategory::data: return "data";
    case MemoryCategory::other: return "other";
  }
  return "unknown";
}

MemoryScope::MemoryScope(MemoryCategory category) noexcept : previous_(current_category) {
  current_category = category;
}
MemoryScope::~MemoryScope() {
  current_category = previous_;
}
MemoryCategory MemoryScope::current() noexcept {
  return current_category;
}

GraphMemory::~GraphMemory() {
  for (const Block& block : blocks_)
    Allocator::of(block.device).release(block.data, block.category, current_stream(block.device));
}
GraphMemory::Scope::Scope(GraphMemory& kept) noexcept : previous_(current_kept) {
  current_kept = &kept;
}
GraphMemory::Scope::~Scope() {
  current_kept = previous_;
}

std::shared_ptr<Storage> Storage::allocate(Device device, std::size_t bytes) {
  auto storage = std::shared_ptr<Storage>(new Storage);
  storage->nbytes_ = bytes;
  storage->device_ = device;
  storage->category_ = current_category;
  if (bytes > 0) {
    storage->data_ = Allocator::of(device).allocate(bytes, current_category, current_stream(device));
    storage->owned_ = true;
  }
  return storage;
}

std::shared_ptr<Storage> Storage::allocate_pinned(Device peer, std::size_t bytes) {
  if (peer.type != DeviceType::cuda || bytes == 0) return allocate(Device{}, bytes);
  auto storage = std::shared_ptr<Storage>(new Storage);
  storage->data_ = PinnedMemory::of(peer).allocate(bytes);
  storage->nbytes_ = bytes;
  storage->pinned_for_ = peer;
  return storage;
}

std::shared_ptr<Storage> Storage::borrow(void* pointer, std::size_t bytes) {
  auto storage = std::shared_ptr<Storage>(new Storage);
  storage->data_ = pointer;
  storage->nbytes_ = bytes;
  return storage;
}

Storage::~Storage() {
  if (!pinned_for_.is_cpu()) PinnedMemory::of(pinned_for_).release(data_);
  if (!owned_) return;
  if (current_kept != nullptr)
    current_kept->blocks_.push_back({device_, data_, category_});
  else
    Allocator::of(device_).release(data_, category_, current_stream(device_));
}

}  // namespace quench
