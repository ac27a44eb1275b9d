#include "core/cuda/common/device_table.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <vector>

#include "core/cuda/common/launch.h"

namespace quench::cuda {
namespace {

constexpr int kWordsPerLaunch = 960;  // 4 KiB of kernel parameters
constexpr std::size_t kKeptTables = 32;

struct WordBatch {
  std::int32_t values[kWordsPerLaunch];
};

__global__ void write_words_kernel(const __grid_constant__ WordBatch words, int count, std::int32_t* to) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) to[i] = words.values[i];
}

Tensor upload(std::span<const std::int32_t> words, Stream stream) {
  const StreamGuard guard(stream);
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor table = Tensor::empty(quench::Shape{static_cast<std::int64_t>(words.size())}, DType::i32, stream.device);
  const OpLaunch launch("upload of a table", {&table});
  std::int32_t* to = table.data<std::int32_t>();
  while (!words.empty()) {
    WordBatch batch;
    const std::size_t count = std::min<std::size_t>(words.size(), kWordsPerLaunch);
    std::copy_n(words.begin(), count, batch.values);
    std::fill(batch.values + count, batch.values + kWordsPerLaunch, 0);
    launch(write_words_kernel, 1, 256, 0, batch, static_cast<int>(count), to);
    words = words.subspan(count);
    to += count;
  }
  return table;
}

struct Entry {
  Stream stream;
  std::vector<std::int32_t> words;
  Tensor table;
};

struct Cache {
  std::mutex mutex;
  std::list<Entry> entries;  // most recent first
};

Cache& cache() {
  static Cache& instance = *new Cache;  // never destroyed: its allocator may be first
  return instance;
}

}  // namespace

Tensor device_table(std::span<const std::int32_t> words, Stream stream) {
  Cache& tables = cache();
  const std::lock_guard lock(tables.mutex);
  const auto found = std::find_if(tables.entries.begin(), tables.entries.end(), [&](const Entry& entry) {
    return entry.stream == stream && std::equal(entry.words.begin(), entry.words.end(), words.begin(), words.end());
  });
  if (found != tables.entries.end()) {
    tables.entries.splice(tables.entries.begin(), tables.entries, found);
    return tables.entries.front().table;
  }
  tables.entries.push_front({stream, {words.begin(), words.end()}, upload(words, stream)});
  if (tables.entries.size() > kKeptTables) {
    // On the stream that may still read it.
    const StreamGuard guard(tables.entries.back().stream);
    tables.entries.pop_back();
  }
  return tables.entries.front().table;
}

}  // namespace quench::cuda
