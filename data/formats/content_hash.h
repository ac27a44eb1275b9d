#pragma once
// XXH3-128 of texts and files (https://github.com/Cyan4973/xxHash). Detects accidental changes, not forgery.

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

  // Length-prefixed, so that adjacent strings hash unambiguously.
  void add(std::string_view text);
  void add(const BinaryFile& file);
  // Bytes [begin, end) of a file, without a length prefix.
  void add_bytes(const BinaryFile& file, std::uint64_t begin, std::uint64_t end);
  // 32 lower-case hex digits, the format of xxhsum -H2.
  [[nodiscard]] std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Larger files are sampled.
inline constexpr std::uint64_t kWholeHashBytes = std::uint64_t{4} << 30;

struct ContentHash {
  std::uint64_t bytes = 0;
  std::string xxh3_128;  // of the whole file, or of its size and the sample
  bool sampled = false;  // 4,096 evenly spaced blocks of 64 KiB, including the first and the last

  friend bool operator==(const ContentHash&, const ContentHash&) = default;
};

// Throws the errors of BinaryFile::read.
[[nodiscard]] ContentHash hash_content(const BinaryFile& file, std::uint64_t whole_bytes = kWholeHashBytes);

}  // namespace quench
