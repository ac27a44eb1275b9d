#include "train/checkpoint/hash.h"

#include <xxhash.h>

#include <new>

namespace quench {

struct StreamHash::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() {
    if (xxh == nullptr) throw std::bad_alloc();
    XXH3_64bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

StreamHash::StreamHash() : state_(std::make_unique<State>()) {}
StreamHash::~StreamHash() = default;

void StreamHash::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_->xxh, bytes.data(), bytes.size());
}

std::uint64_t StreamHash::digest() const {
  return XXH3_64bits_digest(state_->xxh);
}

std::string format_hash(std::uint64_t hash) {
  return fmt::format("{:016x}", hash);
}

std::optional<std::uint64_t> parse_hash(std::string_view text) noexcept {
  if (text.size() != kHashDigits) return std::nullopt;
  std::uint64_t hash = 0;
  for (const char c : text) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return std::nullopt;
    hash = hash << 4 | static_cast<std::uint64_t>(digit);
  }
  return hash;
}

}  // namespace quench
