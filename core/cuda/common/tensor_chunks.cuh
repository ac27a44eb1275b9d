#pragma once
// Chunks of a list of tensors as the blocks of one launch.
//
// The list travels in the kernel's parameters (up to 32764 bytes since CUDA 12.1): the driver copies them when it
// queues the launch, so there is no device table to fill, to keep alive or to find out of date when tensors move, and
// a launch can be captured in a graph. A list that does not fit is cut into several launches, hundreds of tensors each.

#include <cstdint>

namespace quench::cuda {

inline constexpr std::size_t kMaxParameterBytes = 32764;

// Entries with the number of their first chunk. A block is one chunk of one entry.
template <class Entry, int kCapacity>
struct ChunkTable {
  int count = 0;
  int first_chunk[kCapacity + 1] = {};  // ends with the number of chunks of all entries
  Entry entries[kCapacity] = {};

  [[nodiscard]] bool full() const { return count == kCapacity; }
  [[nodiscard]] int chunks() const { return first_chunk[count]; }
  void add(const Entry& entry, std::int64_t chunk_count) {
    entries[count++] = entry;
    first_chunk[count] = first_chunk[count - 1] + static_cast<int>(chunk_count);
  }
  // The entry that a chunk belongs to. The same for all threads of a block: constant-cache reads.
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

// Adds entries in order and hands a table over whenever it is full or its chunks would not fit one grid: flush(table).
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
