#include "data/formats/content_hash.h"

#include <xxhash.h>

#include <algorithm>
#include <new>
#include <vector>

namespace quench {
namespace {

constexpr std::uint64_t kSampleBlocks = 4096;
constexpr std::uint64_t kSampleBytes = std::uint64_t{64} << 10;

}  // namespace

struct Hash128::State {
  XXH3_state_t* xxh = XXH3_createState();
  std::vector<std::byte> block;
  State() {
    if (xxh == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void add_size(std::uint64_t size) { XXH3_128bits_update(xxh, &size, sizeof size); }
};

Hash128::Hash128() : state_(std::make_unique<State>()) {}
Hash128::~Hash128() = default;

void Hash128::add(std::string_view text) {
  state_->add_size(text.size());
  XXH3_128bits_update(state_->xxh, text.data(), text.size());
}

void Hash128::add(const BinaryFile& file) {
  state_->add_size(file.size());
  add_bytes(file, 0, file.size());
}

void Hash128::add_bytes(const BinaryFile& file, std::uint64_t begin, std::uint64_t end) {
  state_->block.resize(std::size_t{1} << 20);
  while (begin < end) {
    const auto piece =
        std::span(state_->block).first(static_cast<std::size_t>(std::min<std::uint64_t>(1 << 20, end - begin)));
    file.read(begin, piece);
    XXH3_128bits_update(state_->xxh, piece.data(), piece.size());
    begin += piece.size();
  }
}

std::string Hash128::text() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

ContentHash hash_content(const BinaryFile& file, std::uint64_t whole_bytes) {
  const std::uint64_t size = file.size();
  Hash128 hash;
  const bool sampled = size > std::max(whole_bytes, kSampleBlocks * kSampleBytes);
  if (sampled) {
    hash.add(fmt::format("sample of {} bytes", size));
    const double distance = static_cast<double>(size - kSampleBytes) / static_cast<double>(kSampleBlocks - 1);
    for (std::uint64_t i = 0; i < kSampleBlocks; ++i) {
      const auto at = static_cast<std::uint64_t>(distance * static_cast<double>(i));
      const std::uint64_t begin = i + 1 == kSampleBlocks ? size - kSampleBytes : std::min(at, size - kSampleBytes);
      hash.add_bytes(file, begin, begin + kSampleBytes);
    }
  } else {
    hash.add_bytes(file, 0, size);
  }
  return {size, hash.text(), sampled};
}

}  // namespace quench
