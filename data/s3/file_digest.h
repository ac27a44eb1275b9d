#pragma once
// SHA-256 digests of a file by parts, and of the whole by those.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/hub/http_client.h"

namespace quench::s3 {

// Digest as an object's metadata hold it.
struct StoredDigest {
  std::string sha256;
  std::uint64_t part_bytes = 0;
  friend bool operator==(const StoredDigest&, const StoredDigest&) = default;
};

// Digests of a file, part by part.
struct FileDigest {
  std::uint64_t bytes = 0;
  std::uint64_t part_bytes = 0;
  std::vector<std::string> parts;  // lower-case hexadecimal; at least one

  [[nodiscard]] std::uint64_t offset(std::size_t part) const { return part * part_bytes; }
  [[nodiscard]] std::uint64_t size(std::size_t part) const;
  // SHA-256 of the file; of several parts that of their digests, one after the other as text.
  [[nodiscard]] StoredDigest stored() const;
};

// Parts of an object, at most.
inline constexpr std::uint64_t kMostParts = 10'000;
// Bytes of a part: `usual`, or more where kMostParts need it.
[[nodiscard]] std::uint64_t part_bytes_for(std::uint64_t bytes, std::uint64_t usual);

// Reads the whole file. Throws not_found, io, hub::Stopped.
[[nodiscard]] FileDigest digest_file(const std::filesystem::path& path, std::uint64_t usual_part_bytes,
                                     const hub::StopPoll& stop);
// Lower-case hexadecimal.
[[nodiscard]] std::string sha256_of(std::string_view text);

}  // namespace quench::s3
