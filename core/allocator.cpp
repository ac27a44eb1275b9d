#include "core/allocator.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_map>

#include "core/check.h"

namespace quench {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kSegmentGranularity = std::size_t{2} << 20;  // huge pages, and cudaMalloc's own granularity
// Requests below this share segments of kSmallSegment bytes, so that small tensors never pin a large segment.
constexpr std::size_t kSmallRequest = std::size_t{1} << 20;
constexpr std::size_t kSmallSegment = std::size_t{2} << 20;
// A larger request gets a segment of at least this size, for its neighbours to share.
constexpr std::size_t kMinLargeSegment = std::size_t{16} << 20;

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

struct Block {
  std::size_t size = 0;
  std::size_t used = 0;  // bytes charged to the statistics while in use
  std::byte* segment = nullptr;
  void* stream = nullptr;  // last stream that freed it
  bool free = false;
  bool small = false;
};

struct Allocator::State {
  using Blocks = std::map<std::byte*, Block>;  // by address: neighbours are adjacent entries

  struct FreeKey {
    std::size_t size;
    std::byte* address;
    bool operator<(const FreeKey& other) const noexcept {
      return size != other.size ? size < other.size : address < other.address;
    }
  };

  mutable std::mutex mutex;
  Blocks blocks;
  std::array<std::set<FreeKey>, 2> free_lists;           // [small]
  std::unordered_map<std::byte*, std::size_t> segments;  // address -> bytes
  MemoryStats stats;
  std::int64_t limit = 0;

  void insert_free(Blocks::iterator it) {
    it->second.free = true;
    free_lists[it->second.small].insert({it->second.size, it->first});
  }
  void erase_free(Blocks::iterator it) {
    free_lists[it->second.small].erase({it->second.size, it->first});
    it->second.free = false;
  }

  // Best fit for `size` among blocks this stream may reuse; end() if none.
  Blocks::iterator find_free(std::size_t size, bool small, void* stream) {
    auto& list = free_lists[small];
    for (auto key = list.lower_bound({size, nullptr}); key != list.end(); ++key) {
      const auto it = blocks.find(key->address);
      if (it->second.stream == stream) return it;
    }
    return blocks.end();
  }

  // Cuts the tail off a block that is larger than needed.
  void split(Blocks::iterator it, std::size_t size) {
    const std::size_t rest = it->second.size - size;
    if (rest < kAlignment) return;
    Block tail = it->second;
    tail.size = rest;
    it->second.size = size;
    insert_free(blocks.emplace(it->first + size, tail).first);
  }

  Blocks::iterator merge(Blocks::iterator left, Blocks::iterator right) {
    left->second.size += right->second.size;
    blocks.erase(right);
    return left;
  }

  bool can_merge(const Block& a, const Block& b) const {
    return a.free && b.free && a.segment == b.segment && a.stream == b.stream;
  }

  // nullptr where the limit or the device has no room.
  void* new_segment(Device device, std::size_t bytes) const {
    if (limit > 0 && stats.reserved + static_cast<std::int64_t>(bytes) > limit) return nullptr;
    return backend(device.type).allocate(device, bytes);
  }

  // Returns wholly free segments, which on CUDA waits for the work that may still use them. True if there were any.
  bool trim(Device device) {
    const std::size_t before = segments.size();
    for (auto segment = segments.begin(); segment != segments.end();) {
      const auto it = blocks.find(segment->first);
      if (it != blocks.end() && it->second.free && it->second.size == segment->second) {
        erase_free(it);
        blocks.erase(it);
        backend(device.type).deallocate(device, segment->first, segment->second);
        stats.reserved -= static_cast<std::int64_t>(segment->second);
        segment = segments.erase(segment);
      } else {
        ++segment;
      }
    }
    return segments.size() < before;
  }

  void count(std::int64_t bytes, MemoryCategory category) {
    stats.current += bytes;
    stats.current_by_category[static_cast<std::size_t>(category)] += bytes;
    if (stats.current > stats.peak) {
      stats.peak = stats.current;
      stats.peak_by_category = stats.current_by_category;
    }
  }
};

Allocator::Allocator(Device device) : device_(device), state_(std::make_unique<State>()) {}

Allocator::~Allocator() {
  for (const auto& [address, bytes] : state_->segments) backend(device_.type).deallocate(device_, address, bytes);
}

Allocator& Allocator::of(Device device) {
  static std::mutex mutex;
  // Never destroyed: tensors with static lifetime may be released after this function's statics would be.
  static auto& table = *new std::map<std::pair<DeviceType, int>, std::unique_ptr<Allocator>>;
  const std::lock_guard lock(mutex);
  auto& slot = table[{device.type, device.index}];
  if (!slot) slot = std::make_unique<Allocator>(device);
  return *slot;
}

void* Allocator::allocate(std::size_t bytes, MemoryCategory category, Stream stream) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  const std::size_t size = round_up(std::max<std::size_t>(bytes, 1), kAlignment);
  const bool small = size < kSmallRequest;
  auto it = s.find_free(size, small, stream.handle);
  if (it == s.blocks.end()) {
    std::size_t segment = small ? kSmallSegment : std::max(kMinLargeSegment, round_up(size, kSegmentGranularity));
    void* address = s.new_segment(device_, segment);
    if (address == nullptr) {  // without the slack that neighbours would share
      segment = round_up(size, kSegmentGranularity);
      address = s.new_segment(device_, segment);
    }
    // What lies idle in segments of other sizes, or belongs to another stream, may make the room.
    if (address == nullptr && s.trim(device_)) address = s.new_segment(device_, segment);
    if (address == nullptr) {
      const DeviceMemory memory = backend(device_.type).memory(device_);
      QUENCH_FAIL(ErrorCode::out_of_memory,
                  "out of memory on {}: {} bytes for {} do not fit ({} of {} bytes are free, {} of {} bytes taken are "
                  "not in use)\n{}"
                  "reduce training.micro_batch_size or data.seq_len, set training.activation_checkpoint to "
                  "\"selective\" or \"full\", or lower training.loss_chunk_size; `quench estimate` shows what fits",
                  device_.to_string(), bytes, to_string(category), memory.free_bytes, memory.total_bytes,
                  s.stats.reserved - s.stats.current, s.stats.reserved, memory_table(s.stats));
    }
    auto* base = static_cast<std::byte*>(address);
    s.segments.emplace(base, segment);
    s.stats.reserved += static_cast<std::int64_t>(segment);
    s.stats.peak_reserved = std::max(s.stats.peak_reserved, s.stats.reserved);
    ++s.stats.segment_count;
    it = s.blocks.emplace(base, Block{segment, 0, base, stream.handle, false, small}).first;
    s.insert_free(it);
  }
  s.erase_free(it);
  s.split(it, size);
  it->second.used = it->second.size;
  s.count(static_cast<std::int64_t>(it->second.used), category);
  return it->first;
}

void Allocator::release(void* pointer, MemoryCategory category, Stream stream) noexcept {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  auto it = s.blocks.find(static_cast<std::byte*>(pointer));
  if (it == s.blocks.end()) return;
  s.count(-static_cast<std::int64_t>(it->second.used), category);
  it->second.stream = stream.handle;
  it->second.free = true;
  if (it != s.blocks.begin()) {
    const auto left = std::prev(it);
    if (s.can_merge(left->second, it->second)) {
      s.free_lists[left->second.small].erase({left->second.size, left->first});
      it = s.merge(left, it);
    }
  }
  const auto right = std::next(it);
  if (right != s.blocks.end() && s.can_merge(it->second, right->second)) {
    s.free_lists[right->second.small].erase({right->second.size, right->first});
    it = s.merge(it, right);
  }
  s.insert_free(it);
}

MemoryStats Allocator::stats() const {
  const std::lock_guard lock(state_->mutex);
  return state_->stats;
}

void Allocator::reset_peak() {
  const std::lock_guard lock(state_->mutex);
  state_->stats.peak = state_->stats.current;
  state_->stats.peak_by_category = state_->stats.current_by_category;
  state_->stats.peak_reserved = state_->stats.reserved;
}

void Allocator::trim() {
  const std::lock_guard lock(state_->mutex);
  (void)state_->trim(device_);
}

void Allocator::set_limit(std::int64_t bytes) {
  const std::lock_guard lock(state_->mutex);
  state_->limit = bytes;
}

std::string memory_table(const MemoryStats& stats) {
  constexpr double kMiB = 1 << 20;
  std::string table = fmt::format("{:<14}{:>12}{:>12}\n", "MiB", "now", "at peak");
  for (int i = 0; i < kMemoryCategoryCount; ++i) {
    const auto now = static_cast<double>(stats.current_by_category[static_cast<std::size_t>(i)]);
    const auto peak = static_cast<double>(stats.peak_by_category[static_cast<std::size_t>(i)]);
    if (now == 0 && peak == 0) continue;
    table +=
        fmt::format("{:<14}{:>12.1f}{:>12.1f}\n", to_string(static_cast<MemoryCategory>(i)), now / kMiB, peak / kMiB);
  }
  table += fmt::format("{:<14}{:>12.1f}{:>12.1f}\n", "total", static_cast<double>(stats.current) / kMiB,
                       static_cast<double>(stats.peak) / kMiB);
  return table;
}

}  // namespace quench
