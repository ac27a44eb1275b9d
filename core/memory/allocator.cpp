#include "core/memory/allocator.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "core/memory/memory_limit.h"
#include "core/system/check.h"

namespace quench {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kSegmentGranularity = std::size_t{2} << 20;  // huge pages; granularity of cudaMalloc
// Smaller requests share kSmallSegment segments: they never pin a large one.
constexpr std::size_t kSmallRequest = std::size_t{1} << 20;
constexpr std::size_t kSmallSegment = std::size_t{2} << 20;
constexpr std::size_t kMinLargeSegment = std::size_t{16} << 20;

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

struct Allocator::State {
  struct Block {
    std::size_t size = 0;
    std::size_t used = 0;          // bytes charged to the statistics
    std::byte* segment = nullptr;  // nullptr: contiguous segments
    void* stream = nullptr;        // last free
    bool free = false;
    bool small = false;
    MemoryPart part = MemoryPart::other;  // holder of the bytes charged
  };

  using Blocks = std::map<std::byte*, Block>;  // by address, so neighbours are adjacent

  struct FreeKey {
    std::size_t size;
    std::byte* address;
    bool operator<(const FreeKey& other) const noexcept {
      return size != other.size ? size < other.size : address < other.address;
    }
  };

  mutable std::mutex mutex;
  Blocks blocks;
  std::array<std::set<FreeKey>, 2> free_lists;  // [small]
  std::map<std::byte*, std::size_t> segments;   // address -> bytes
  std::byte* growing_end = nullptr;             // end of the contiguous segments, if ours
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

  // Best fit of this stream; end() if none.
  Blocks::iterator find_free(std::size_t size, bool small, void* stream) {
    auto& list = free_lists[small];
    for (auto key = list.lower_bound({size, nullptr}); key != list.end(); ++key) {
      const auto it = blocks.find(key->address);
      if (it->second.stream == stream) return it;
    }
    return blocks.end();
  }

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

  bool can_merge(Blocks::iterator left, Blocks::iterator right) const {
    const Block &a = left->second, &b = right->second;
    return a.free && b.free && a.segment == b.segment && a.stream == b.stream && left->first + a.size == right->first;
  }

  // Counted at each new segment: libraries load in the first steps.
  [[nodiscard]] std::int64_t outside(Device device) const {
    return device.type == DeviceType::cuda ? outside_bytes(backend(device.type).memory(device), stats.reserved) : 0;
  }

  [[nodiscard]] bool within_limit(Device device, std::size_t bytes) const {
    return limit == 0 || stats.reserved + static_cast<std::int64_t>(bytes) + outside(device) <= limit;
  }

  [[noreturn]] void fail(Device device, std::size_t bytes, MemoryCategory category) const {
    const DeviceMemory memory = backend(device.type).memory(device);
    const std::string bound =
        limit == 0 ? fmt::format("{} of {} bytes are free", memory.free_bytes, memory.total_bytes)
                   : fmt::format(
                         "memory limit {} bytes, {} of them used outside tensors, {} of {} bytes of the device "
                         "are free",
                         limit, outside(device), memory.free_bytes, memory.total_bytes);
    QUENCH_FAIL(ErrorCode::out_of_memory,
                "out of memory on {}: {} bytes for {} do not fit ({}, {} of {} bytes taken are not in use)\n{}{}"
                "reduce training.micro_batch_size or data.seq_len, set training.activation_checkpoint to "
                "\"selective\" or \"full\", or lower training.loss_chunk_size; `quench estimate` shows what fits",
                device.to_string(), bytes, to_string(category), bound, stats.reserved - stats.current, stats.reserved,
                memory_table(stats), limit == 0 ? "" : "raise --memory-limit (training.memory_limit), or ");
  }

  void add_segment(std::byte* address, std::size_t bytes) {
    segments.emplace(address, bytes);
    stats.reserved += static_cast<std::int64_t>(bytes);
    stats.peak_reserved = std::max(stats.peak_reserved, stats.reserved);
    ++stats.segment_count;
  }

  // end() at the limit or out of memory.
  Blocks::iterator new_segment(Device device, std::size_t bytes, bool small, void* stream) {
    if (!within_limit(device, bytes)) return blocks.end();
    auto* address = static_cast<std::byte*>(backend(device.type).allocate(device, bytes));
    if (address == nullptr) return blocks.end();
    add_segment(address, bytes);
    const auto it = blocks.emplace(address, Block{bytes, 0, address, stream, false, small}).first;
    insert_free(it);
    return it;
  }

  // Last contiguous block, if free and of this stream.
  Blocks::iterator last_growing(void* stream) {
    if (growing_end == nullptr) return blocks.end();
    auto last = blocks.lower_bound(growing_end);
    if (last == blocks.begin()) return blocks.end();
    --last;
    const bool usable = last->second.segment == nullptr && last->second.free && last->second.stream == stream &&
                        last->first + last->second.size == growing_end;
    return usable ? last : blocks.end();
  }

  // By the bytes that a free last block lacks, else by `bytes`.
  Blocks::iterator grow(Device device, std::size_t size, std::size_t bytes, void* stream) {
    const auto last = last_growing(stream);
    if (last != blocks.end()) bytes = round_up(size - last->second.size, kSegmentGranularity);
    if (!within_limit(device, bytes)) return blocks.end();
    Backend& b = backend(device.type);
    auto* address = static_cast<std::byte*>(b.allocate_behind(device, bytes));
    if (address == nullptr) return blocks.end();
    if (last != blocks.end() && address != growing_end) {  // another allocator's segment is in between
      b.deallocate(device, address, bytes);
      return blocks.end();
    }
    add_segment(address, bytes);
    growing_end = address + bytes;
    auto it = blocks.emplace(address, Block{bytes, 0, nullptr, stream, true, false}).first;
    if (last != blocks.end()) {
      erase_free(last);
      last->second.free = true;
      it = merge(last, it);
    }
    insert_free(it);
    return it;
  }

  // Large minimum segment first, then the exact size.
  Blocks::iterator make_room(Device device, std::size_t size, bool small, void* stream) {
    if (small) return new_segment(device, kSmallSegment, true, stream);
    const std::size_t exact = round_up(size, kSegmentGranularity);
    for (const std::size_t bytes : {std::max(kMinLargeSegment, exact), exact}) {
      auto it = grow(device, size, bytes, stream);
      if (it == blocks.end()) it = new_segment(device, bytes, false, stream);
      if (it != blocks.end()) return it;
    }
    return blocks.end();
  }

  // Removes [first, first + bytes) from the free block that contains it; false if none.
  bool cut_free(std::byte* first, std::size_t bytes) {
    auto it = blocks.upper_bound(first);
    if (it == blocks.begin()) return false;
    --it;
    if (!it->second.free || it->first + it->second.size < first + bytes) return false;
    erase_free(it);
    const auto before = static_cast<std::size_t>(first - it->first);
    const std::size_t behind = it->second.size - before - bytes;
    Block rest = it->second;
    if (behind > 0) {
      rest.size = behind;
      insert_free(blocks.emplace(first + bytes, rest).first);
    }
    if (before > 0) {
      it->second.size = before;
      insert_free(it);
    } else {
      blocks.erase(it);
    }
    return true;
  }

  // Synchronizes on CUDA; last first, so that the backend can reuse addresses. True if any.
  bool trim(Device device) {
    const std::size_t count_before = segments.size();
    for (auto segment = segments.end(); segment != segments.begin();) {
      --segment;
      const auto [address, bytes] = *segment;
      if (!cut_free(address, bytes)) continue;
      backend(device.type).deallocate(device, address, bytes);
      stats.reserved -= static_cast<std::int64_t>(bytes);
      if (address + bytes == growing_end) growing_end = address;
      segment = segments.erase(segment);
    }
    return segments.size() < count_before;
  }

  void count(std::int64_t bytes, MemoryCategory category, MemoryPart part) {
    const auto at = static_cast<std::size_t>(category);
    stats.current += bytes;
    stats.current_by_category[at] += bytes;
    stats.current_by_part[at][static_cast<std::size_t>(part)] += bytes;
    if (stats.current > stats.peak) begin_peak();
  }

  void begin_peak() {
    stats.peak = stats.current;
    stats.peak_by_category = stats.current_by_category;
    stats.peak_by_part = stats.current_by_part;
  }
};

Allocator::Allocator(Device device) : device_(device), state_(std::make_unique<State>()) {}

Allocator::~Allocator() {
  const auto& segments = state_->segments;
  for (auto it = segments.rbegin(); it != segments.rend(); ++it)
    backend(device_.type).deallocate(device_, it->first, it->second);
}

Allocator& Allocator::of(Device device) {
  static std::mutex mutex;
  // Leaked: static tensors may outlive function statics.
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
  if (it == s.blocks.end()) it = s.make_room(device_, size, small, stream.handle);
  if (it == s.blocks.end()) {
    // Retry after freeing unused segments, including other streams'.
    if (s.trim(device_)) it = s.make_room(device_, size, small, stream.handle);
    if (it == s.blocks.end()) s.fail(device_, bytes, category);
  }
  s.erase_free(it);
  s.split(it, size);
  it->second.used = it->second.size;
  it->second.part = MemoryPartScope::current();
  s.count(static_cast<std::int64_t>(it->second.used), category, it->second.part);
  return it->first;
}

void Allocator::release(void* pointer, MemoryCategory category, Stream stream) noexcept {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  auto it = s.blocks.find(static_cast<std::byte*>(pointer));
  if (it == s.blocks.end()) return;
  s.count(-static_cast<std::int64_t>(it->second.used), category, it->second.part);
  it->second.stream = stream.handle;
  it->second.free = true;
  if (it != s.blocks.begin()) {
    const auto left = std::prev(it);
    if (s.can_merge(left, it)) {
      s.free_lists[left->second.small].erase({left->second.size, left->first});
      it = s.merge(left, it);
    }
  }
  const auto right = std::next(it);
  if (right != s.blocks.end() && s.can_merge(it, right)) {
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
  state_->begin_peak();
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

std::int64_t Allocator::limit() const {
  const std::lock_guard lock(state_->mutex);
  return state_->limit;
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
