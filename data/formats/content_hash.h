#pragma once
// XXH3-128 (https://github.com/Cyan4973/xxHash): accidental changes, not forgery.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "data/formats/binary_file.h"

namespace quench {

class Hash128 {
 public:
  Hash128();
  ~Hash128();
  Hash128(const Hash128&) = delete;
  Hash128& operator=(const Hash128&) = delete;

  // Length-prefixed: adjacent strings are unambiguous.
  void add(std::string_view text);
  void add(const BinaryFile& file);
  // [begin, end), without a length prefix.
  void add_bytes(const BinaryFile& file, std::uint64_t begin, std::uint64_t end);
  // 32 lower-case hex digits, as xxhsum -H2.
  [[nodiscard]] std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Sampled beyond.
inline constexpr std::uint64_t kWholeHashBytes = std::uint64_t{4} << 30;

struct ContentHash {
  std::uint64_t bytes = 0;
  std::string xxh3_128;  // hash of the file, or of its size and the sample
  bool sampled = false;  // 4,096 evenly spaced blocks of 64 KiB, with first and last

  friend bool operator==(const ContentHash&, const ContentHash&) = default;
};

// Throws the errors of BinaryFile::read.
[[nodiscard]] ContentHash hash_content(const BinaryFile& file, std::uint64_t whole_bytes = kWholeHashBytes);

}  // namespace quench
