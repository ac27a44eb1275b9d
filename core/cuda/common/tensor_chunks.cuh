#pragma once
// Chunks of a tensor list as CTAs of one launch. The list is in kernel parameters (up to 32764 bytes since CUDA 12.1),
// capturable in a device graph. Longer lists: several launches.

#include <cstdint>

namespace quench::cuda {

inline constexpr std::size_t kMaxParameterBytes = 32764;

// Elements [begin, begin + size) of an entry's tensor.
template <class Entry>
struct TensorChunk {
  const Entry& entry;
  std::int64_t begin;
  int size;

  // update<4>(i), then update<1>(i) for the rest, or all unless entry.wide; i: index in the tensor.
  template <int kThreads, class Update>
  __device__ void for_each(const Update& update) const {
    constexpr int kWidth = 4;
    const int vectors = entry.wide ? size / kWidth : 0;
    for (int v = static_cast<int>(threadIdx.x); v < vectors; v += kThreads)
      update.template operator()<kWidth>(begin + v * kWidth);
    for (int i = vectors * kWidth + static_cast<int>(threadIdx.x); i < size; i += kThreads)
      update.template operator()<1>(begin + i);
  }
};

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
  // This CTA's, of an entry with `numel` elements.
  template <int kChunk>
  [[nodiscard]] __device__ TensorChunk<Entry> chunk() const {
    const int chunk = static_cast<int>(blockIdx.x), index = entry_of(chunk);
    const std::int64_t begin = static_cast<std::int64_t>(chunk - first_chunk[index]) * kChunk;
    return {entries[index], begin,
            static_cast<int>(min(static_cast<std::int64_t>(kChunk), entries[index].numel - begin))};
  }
};

// launch(table) for the entries of `tensors`, in order; several times if they exceed a table or a grid. `extent`:
// elements of an entry, in chunks of `chunk`; entries without are left out.
template <class Table, class Tensors, class Entry, class MakeEntry, class Launch>
void for_tables(const Tensors& tensors, std::int64_t chunk, std::int64_t Entry::*extent, const MakeEntry& make_entry,
                const Launch& launch) {
  constexpr std::int64_t kMaxChunks = 0x7FFFFFFF;
  Table table;
  for (const auto& tensor : tensors) {
    const Entry entry = make_entry(tensor);
    if (entry.*extent == 0) continue;
    const std::int64_t chunks = (entry.*extent + chunk - 1) / chunk;
    if (table.full() || table.chunks() > kMaxChunks - chunks) {
      launch(table);
      table.count = 0;
    }
    table.add(entry, chunks);
  }
  if (table.count > 0) launch(table);
}

}  // namespace quench::cuda
