#pragma once
// Reference-counted bytes on a device, tagged with what they are for.

#include <cstddef>
#include <memory>
#include <vector>

#include "core/device/device.h"

namespace quench {

// What a block of memory is for. `estimate`, the metrics line and the out-of-memory table report by category.
enum class MemoryCategory : std::uint8_t {
  parameters,
  gradients,
  optimizer,
  activations,
  workspace,  // scratch inside an op
  data,       // batches
  other,
};
inline constexpr int kMemoryCategoryCount = 7;

[[nodiscard]] std::string_view to_string(MemoryCategory category) noexcept;

// Sets the category of allocations made by this thread while it is alive; scopes nest. Default: `other`.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryCategory category) noexcept;
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;
  [[nodiscard]] static MemoryCategory current() noexcept;

 private:
  MemoryCategory previous_;
};

// Keeps the memory of tensors that end while a GraphMemory::Scope of it is alive on the calling thread: work captured
// in a graph uses their addresses whenever it is launched.
class GraphMemory {
 public:
  GraphMemory() = default;
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  class Scope {
   public:
    explicit Scope(GraphMemory& kept) noexcept;
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    GraphMemory* previous_;
  };

 private:
  friend class Storage;
  struct Block {
    Device device;
    void* data;
    MemoryCategory category;
  };
  std::vector<Block> blocks_;
};

class Storage {
 public:
  // Bytes from the device's caching allocator, 64-byte aligned, uninitialised. Throws out_of_memory.
  static std::shared_ptr<Storage> allocate(Device device, std::size_t bytes);
  // Page-locked host bytes for copies from and to `peer`, a GPU; plain host bytes where peer is another kind.
  static std::shared_ptr<Storage> allocate_pinned(Device peer, std::size_t bytes);
  // Borrows bytes that outlive the storage (host memory only).
  static std::shared_ptr<Storage> borrow(void* pointer, std::size_t bytes);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t nbytes() const noexcept { return nbytes_; }
  [[nodiscard]] Device device() const noexcept { return device_; }

 private:
  Storage() = default;
  void* data_ = nullptr;
  std::size_t nbytes_ = 0;
  Device device_;
  MemoryCategory category_ = MemoryCategory::other;
  Device pinned_for_;  // not the CPU: the bytes come from that device's pool of page-locked memory
  bool owned_ = false;
};

}  // namespace quench
