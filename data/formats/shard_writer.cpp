#include "data/formats/shard_writer.h"

#include <xxhash.h>

#include <cstddef>
#include <cstring>

#include "core/system/check.h"
#include "data/formats/shard_format.h"

namespace quench {
namespace {
constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
}

struct ShardWriter::Hash {
  XXH3_state_t* state = XXH3_createState();
  Hash() { XXH3_64bits_reset(state); }
  ~Hash() { XXH3_freeState(state); }
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;
};

ShardWriter::ShardWriter(const std::filesystem::path& path, const ShardOptions& options)
    : path_(path), options_(options), hash_(std::make_unique<Hash>()), file_(path) {
  QUENCH_CHECK(options.vocab_size > 0 && options.vocab_size <= (std::uint64_t{1} << 31),
               "{}: a shard for a vocabulary of {}", path.string(), options.vocab_size);
  QUENCH_CHECK(options.tokenizer_fingerprint.size() <= sizeof(ShardTrailer::fingerprint),
               "{}: tokenizer fingerprint of {} bytes", path.string(), options.tokenizer_fingerprint.size());
  buffer_.reserve(kBufferBytes);
  const std::uint32_t numbers[2] = {kShardVersion, options.vocab_size <= 65536 ? 2u : 4u};
  std::byte header[kShardHeaderBytes] = {};
  std::memcpy(header, kShardMagic.data(), kShardMagic.size());
  std::memcpy(header + kShardMagic.size(), numbers, sizeof numbers);
  put(header);
}

ShardWriter::~ShardWriter() = default;

void ShardWriter::append(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> targets) {
  QUENCH_CHECK(targets.empty() || targets.size() == tokens.size(), "{}: {} target flags for {} tokens", path_.string(),
               targets.size(), tokens.size());
  QUENCH_CHECK(targets.empty() || options_.target_mask, "{}: target flags for a shard without a mask", path_.string());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<std::uint32_t>(tokens[i]);
    QUENCH_CHECK(id < options_.vocab_size, "{}: token id {} is outside the vocabulary of {}", path_.string(), tokens[i],
                 options_.vocab_size);
    const auto narrow = static_cast<std::uint16_t>(id);
    if (options_.vocab_size <= 65536)
      put(std::as_bytes(std::span(&narrow, 1)));
    else
      put(std::as_bytes(std::span(&id, 1)));
    if (options_.target_mask) {
      if (token_count_ % 8 == 0) mask_.push_back(0);
      const bool target = targets.empty() || targets[i] != 0;
      mask_.back() = static_cast<std::uint8_t>(mask_.back() | (target ? 1u << (token_count_ % 8) : 0u));
    }
    ++token_count_;
  }
}

void ShardWriter::end_document() {
  const std::uint64_t previous = document_ends_.empty() ? 0 : document_ends_.back();
  if (token_count_ > previous) document_ends_.push_back(token_count_);
}

void ShardWriter::finish() {
  end_document();
  QUENCH_CHECK(token_count_ > 0, "{}: a shard without tokens", path_.string());
  pad();
  put(std::as_bytes(std::span(document_ends_)));
  put(std::as_bytes(std::span(mask_)));
  pad();
  flush();
  ShardTrailer trailer;
  trailer.token_count = token_count_;
  trailer.vocab_size = options_.vocab_size;
  trailer.document_count = document_ends_.size();
  trailer.eos_id = options_.eos_id.value_or(-1);
  trailer.flags = options_.target_mask ? kShardHasMask : 0;
  trailer.fingerprint_length = static_cast<std::uint32_t>(options_.tokenizer_fingerprint.size());
  std::memcpy(trailer.fingerprint, options_.tokenizer_fingerprint.data(), options_.tokenizer_fingerprint.size());
  trailer.payload_hash = XXH3_64bits_digest(hash_->state);
  trailer.trailer_hash = XXH3_64bits(&trailer, offsetof(ShardTrailer, trailer_hash));
  std::memcpy(trailer.magic, kShardEndMagic.data(), kShardEndMagic.size());
  file_.write(std::as_bytes(std::span(&trailer, 1)));
  file_.commit();
}

void ShardWriter::put(std::span<const std::byte> bytes) {
  put_bytes_ += bytes.size();
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() > kBufferBytes) {
    XXH3_64bits_update(hash_->state, bytes.data(), bytes.size());
    file_.write(bytes);
    return;
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void ShardWriter::pad() {
  constexpr std::byte kZeros[8] = {};
  if (put_bytes_ % 8 != 0) put(std::span(kZeros).first(static_cast<std::size_t>(8 - put_bytes_ % 8)));
}

void ShardWriter::flush() {
  XXH3_64bits_update(hash_->state, buffer_.data(), buffer_.size());
  file_.write(std::span<const std::byte>(buffer_));
  buffer_.clear();
}

}  // namespace quench
