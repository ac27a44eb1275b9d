#pragma once
// Chunks of a tensor list as CTAs of one launch. The list is in kernel parameters (up to 32764 bytes since CUDA 12.1),
// capturable in a device graph. Longer lists: several launches.

#include <cstdint>

namespace quench::cuda {

inline constexpr std::size_t kMaxParameterBytes = 32764;

// One CTA per chunk.
template <class Entry, int kCapacity>
struct ChunkTable {
  int count = 0;
  int first_chunk[kCapacity + 1] = {};  // last: total
  Entry entries[kCapacity] = {};

  [[nodiscard]] bool full() const { return count == kCapacity; }
  [[nodiscard]] int chunks() const { return first_chunk[count]; }
  void add(const Entry& entry, std::int64_t chunk_count) {
    entries[count++] = entry;
    first_chunk[count] = first_chunk[count - 1] + static_cast<int>(chunk_count);
  }
  // Uniform over a CTA: constant-cache reads.
  [[nodiscard]] __device__ int entry_of(int chunk) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (first_chunk[middle] <= chunk)
        low = middle;
      else
        high = middle;
    }
    return low;
  }
};

// In order; flush(table) when the table is full or its chunks exceed a grid.
template <class Table, class Flush>
class ChunkTableFiller {
 public:
  explicit ChunkTableFiller(Flush flush) : flush_(std::move(flush)) {}
  template <class Entry>
  void add(const Entry& entry, std::int64_t chunk_count) {
    if (table_.full() || table_.chunks() > kMaxChunks - chunk_count) finish();
    table_.add(entry, chunk_count);
  }
  void finish() {
    if (table_.count > 0) flush_(table_);
    table_.count = 0;
  }

 private:
  static constexpr std::int64_t kMaxChunks = 0x7FFFFFFF;
  Table table_;
  Flush flush_;
};

}  // namespace quench::cuda
