#pragma once
// Reference-counted device memory with a category.

#include <cstddef>
#include <memory>
#include <vector>

#include "core/device/device.h"

namespace quench {

enum class MemoryCategory : std::uint8_t {
  parameters,
  gradients,
  optimizer,
  activations,
  workspace,  // op scratch
  data,
  other,
};
inline constexpr int kMemoryCategoryCount = 7;

[[nodiscard]] std::string_view to_string(MemoryCategory category) noexcept;

// Nestable, per thread. Default: other.
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

// Retains memory freed on the calling thread during a Scope: captured graphs reuse the addresses.
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
  // 64-byte aligned, uninitialized. Throws out_of_memory.
  static std::shared_ptr<Storage> allocate(Device device, std::size_t bytes);
  // For copies with GPU `peer`; pageable for other devices.
  static std::shared_ptr<Storage> allocate_pinned(Device peer, std::size_t bytes);
  // Host memory, must outlive the storage.
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
  Device pinned_for_;  // unless CPU, the pinned pool's device
  bool owned_ = false;
};

}  // namespace quench
