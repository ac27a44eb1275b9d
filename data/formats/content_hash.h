#pragma once
// XXH3-128 of texts and files (https://github.com/Cyan4973/xxHash): tells contents apart, against accidents, not
// forgery.

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

  // The length goes in first, so that neighbours cannot trade bytes.
  void add(std::string_view text);
  void add(const BinaryFile& file);
  // Bytes [begin, end) of a file, without their number.
  void add_bytes(const BinaryFile& file, std::uint64_t begin, std::uint64_t end);
  // 32 lower-case hex digits, as xxhsum -H2 prints them.
  [[nodiscard]] std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Files of up to this size are hashed from end to end; of larger ones a sample is.
inline constexpr std::uint64_t kWholeHashBytes = std::uint64_t{4} << 30;

struct ContentHash {
  std::uint64_t bytes = 0;
  std::string xxh3_128;  // of the whole file; or of its size and its sample
  bool sampled = false;  // 4,096 blocks of 64 KiB at even distances, the first and the last among them

  friend bool operator==(const ContentHash&, const ContentHash&) = default;
};

// Reads the file; throws what BinaryFile::read throws.
[[nodiscard]] ContentHash hash_content(const BinaryFile& file, std::uint64_t whole_bytes = kWholeHashBytes);

}  // namespace quench
