#include "data/formats/shard_format.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>

namespace quench {
namespace {

constexpr std::uint64_t round_up_8(std::uint64_t bytes) {
  return (bytes + 7) / 8 * 8;
}

ShardTrailer read_trailer(const BinaryFile& file) {
  const std::string name = file.path().string();
  QUENCH_CHECK_AS(ErrorCode::corrupt, file.size() >= kShardHeaderBytes + sizeof(ShardTrailer),
                  "{}: {} bytes is too small for a token shard: the file is truncated or unfinished", name,
                  file.size());
  const auto trailer = file.value<ShardTrailer>(file.size() - sizeof(ShardTrailer));
  QUENCH_CHECK_AS(ErrorCode::corrupt, std::string_view(trailer.magic, sizeof trailer.magic) == kShardEndMagic,
                  "{}: no trailer at the end: the file is truncated or unfinished", name);
  QUENCH_CHECK_AS(ErrorCode::corrupt,
                  trailer.trailer_hash == XXH3_64bits(&trailer, offsetof(ShardTrailer, trailer_hash)),
                  "{}: the trailer's hash does not match", name);
  return trailer;
}

}  // namespace

TokenLayout read_shard_layout(const BinaryFile& file) {
  const std::string name = file.path().string();
  const ShardTrailer trailer = read_trailer(file);
  std::array<char, 8> magic{};
  file.read(0, std::as_writable_bytes(std::span(magic)));
  QUENCH_CHECK_AS(ErrorCode::corrupt, std::string_view(magic.data(), magic.size()) == kShardMagic,
                  "{}: does not start with QTOKENS", name);
  const auto version = file.value<std::uint32_t>(8);
  QUENCH_CHECK_AS(ErrorCode::unsupported, version == kShardVersion, "{}: token shard of version {}; {} is read", name,
                  version, kShardVersion);
  const auto width = file.value<std::uint32_t>(12);
  QUENCH_CHECK_AS(ErrorCode::corrupt, width == 2 || width == 4, "{}: {} bytes a token, expected 2 or 4", name, width);
  QUENCH_CHECK_AS(ErrorCode::corrupt, trailer.flags <= kShardHasMask, "{}: unknown flags {:#x}", name, trailer.flags);
  QUENCH_CHECK_AS(ErrorCode::corrupt, trailer.fingerprint_length <= sizeof trailer.fingerprint,
                  "{}: fingerprint of {} bytes", name, trailer.fingerprint_length);
  QUENCH_CHECK_AS(ErrorCode::corrupt,
                  trailer.eos_id >= -1 && trailer.eos_id <= std::numeric_limits<std::int32_t>::max(), "{}: EOS id {}",
                  name, trailer.eos_id);
  QUENCH_CHECK_AS(ErrorCode::corrupt, trailer.token_count > 0, "{}: holds no tokens", name);

  TokenLayout layout;
  layout.element = width == 2 ? DType::u16 : DType::u32;
  layout.data_offset = kShardHeaderBytes;
  layout.token_count = trailer.token_count;
  layout.vocab_size = trailer.vocab_size;
  if (trailer.eos_id >= 0) layout.eos_id = static_cast<std::int32_t>(trailer.eos_id);
  layout.tokenizer_fingerprint.assign(trailer.fingerprint, trailer.fingerprint_length);

  const std::uint64_t body = file.size() - kShardHeaderBytes - sizeof(ShardTrailer);
  const bool has_mask = (trailer.flags & kShardHasMask) != 0;
  const bool counts_possible = trailer.token_count <= body / width && trailer.document_count <= trailer.token_count &&
                               trailer.document_count <= body / 8;
  const std::uint64_t token_bytes = counts_possible ? round_up_8(trailer.token_count * width) : 0;
  const std::uint64_t mask_bytes = has_mask && counts_possible ? round_up_8((trailer.token_count + 7) / 8) : 0;
  QUENCH_CHECK_AS(ErrorCode::corrupt, counts_possible && body == token_bytes + 8 * trailer.document_count + mask_bytes,
                  "{}: {} tokens of {} bytes and {} documents{} do not match the file's {} bytes", name,
                  trailer.token_count, width, trailer.document_count, has_mask ? " with a target mask" : "",
                  file.size());
  const std::uint64_t table = kShardHeaderBytes + token_bytes;
  if (has_mask) layout.mask_offset = table + 8 * trailer.document_count;
  if (trailer.document_count == 0) return layout;

  layout.document_ends.resize(static_cast<std::size_t>(trailer.document_count));
  file.read(table, std::as_writable_bytes(std::span(layout.document_ends)));
  std::uint64_t previous = 0;
  for (std::size_t i = 0; i < layout.document_ends.size(); ++i) {
    const std::uint64_t end = layout.document_ends[i];
    QUENCH_CHECK_AS(ErrorCode::corrupt, end > previous && end <= trailer.token_count,
                    "{}: document {} ends at token {} after {}, with {} tokens", name, i, end, previous,
                    trailer.token_count);
    previous = end;
  }
  QUENCH_CHECK_AS(ErrorCode::corrupt, previous == trailer.token_count, "{}: the last document ends at token {} of {}",
                  name, previous, trailer.token_count);
  return layout;
}

void verify_shard(const BinaryFile& file) {
  const ShardTrailer trailer = read_trailer(file);
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  std::vector<std::byte> block(std::size_t{1} << 20);
  const std::uint64_t end = file.size() - sizeof(ShardTrailer);
  for (std::uint64_t offset = 0; offset < end;) {
    const auto piece =
        std::span(block).first(static_cast<std::size_t>(std::min<std::uint64_t>(block.size(), end - offset)));
    file.read(offset, piece);
    XXH3_64bits_update(state.get(), piece.data(), piece.size());
    offset += piece.size();
  }
  QUENCH_CHECK_AS(ErrorCode::corrupt, XXH3_64bits_digest(state.get()) == trailer.payload_hash,
                  "{}: the tokens do not match their hash: the file was damaged after it was written",
                  file.path().string());
}

}  // namespace quench
