#pragma once
// Quench token shards: self-contained token files. Little-endian.
//
//   bytes 0-63   header: "QTOKENS\n", u32 version 1, u32 bytes per token (2 or 4), zeros
//   from 64      tokens, u16 or u32; padded with zeros to a multiple of 8 bytes
//                u64 end of each document (exclusive, in tokens; strictly increasing, the last is the token count)
//                target mask, if any: one bit per token, least significant first, 1 = the token may be a target;
//                padded with zero bits to a multiple of 8 bytes
//   last 256     trailer: u64 token count, u64 vocabulary size (0 unknown), u64 document count (0: no table),
//                i64 EOS id (-1 none), u32 flags (1 = target mask), u32 fingerprint length, u64 XXH3-64 of all bytes
//                before the trailer, 160 bytes tokenizer fingerprint, 32 zeros, u64 XXH3-64 of the 240 trailer bytes
//                before it, "QTOKEND\n"
//
// The trailer is written last: a file without it is unfinished. The file size must be exactly what the trailer implies.

#include <string_view>

#include "data/formats/token_layout.h"

namespace quench {

inline constexpr std::string_view kShardMagic = "QTOKENS\n";
inline constexpr std::string_view kShardEndMagic = "QTOKEND\n";
inline constexpr std::uint32_t kShardVersion = 1;
inline constexpr std::uint64_t kShardHeaderBytes = 64;

struct ShardTrailer {
  std::uint64_t token_count = 0;
  std::uint64_t vocab_size = 0;
  std::uint64_t document_count = 0;
  std::int64_t eos_id = -1;
  std::uint32_t flags = 0;
  std::uint32_t fingerprint_length = 0;
  std::uint64_t payload_hash = 0;
  char fingerprint[160] = {};
  char reserved[32] = {};
  std::uint64_t trailer_hash = 0;
  char magic[8] = {};
};
static_assert(sizeof(ShardTrailer) == 256);
inline constexpr std::uint32_t kShardHasMask = 1;

// Throws corrupt (unfinished, trailer hash, counts against size, document table not increasing) or unsupported
// (version). Payload hash: verify_shard().
[[nodiscard]] TokenLayout read_shard_layout(const BinaryFile& file);

// Throws corrupt.
void verify_shard(const BinaryFile& file);

}  // namespace quench
