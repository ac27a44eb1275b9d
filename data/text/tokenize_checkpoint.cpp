#include "data/text/tokenize_checkpoint.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string_view>

#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/log.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "QNCHJRN2";  // last character: version
constexpr std::size_t kIdentityBytes = 32;
constexpr std::size_t kHeaderBytes = kMagic.size() + kIdentityBytes;

template <class T>
std::uint64_t hash_values(const std::vector<T>& values, std::uint64_t seed) {
  return XXH3_64bits_withSeed(values.data(), values.size() * sizeof(T), seed);
}

// Everything that affects ids, masks and marks.
std::uint64_t hash_documents(std::span<const Document> documents) {
  std::uint64_t hash = documents.size();
  for (const Document& document : documents) {
    const std::uint64_t mark = document.mark ? 1 + std::uint64_t{*document.mark} : 0;
    const std::array<std::uint64_t, 5> shape = {document.pieces.size(), document.complete, document.begins,
                                                document.ends, mark};
    hash = XXH3_64bits_withSeed(shape.data(), sizeof shape, hash);
    for (const DocumentPiece& piece : document.pieces) {
      const std::array<std::uint64_t, 7> sizes = {piece.text.size(), piece.ids.size(), piece.targets.size(),
                                                  piece.special,     piece.joined,     piece.target,
                                                  piece.markup};
      hash = XXH3_64bits_withSeed(sizes.data(), sizeof sizes, hash);
      hash = XXH3_64bits_withSeed(piece.text.data(), piece.text.size(), hash);
      hash = hash_values(piece.targets, hash_values(piece.ids, hash));
      for (const auto& [begin, end] : piece.target_bytes) {
        const std::array<std::uint64_t, 2> range = {begin, end};
        hash = XXH3_64bits_withSeed(range.data(), sizeof range, hash);
      }
    }
  }
  return hash;
}

template <class T>
void put(std::vector<std::byte>& out, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

// Counts, ids (u16 if all fit), flags.
std::vector<std::byte> pack(std::span<const EncodedDocument> encoded) {
  constexpr std::int32_t kLargest = std::numeric_limits<std::uint16_t>::max();
  std::vector<std::byte> out;
  bool wide = false;
  std::vector<std::uint64_t> counts;
  for (const EncodedDocument& document : encoded) {
    counts.push_back(document.ids.size());
    counts.push_back(document.targets.size());
    wide = wide || std::any_of(document.ids.begin(), document.ids.end(),
                               [](std::int32_t id) { return id < 0 || id > kLargest; });
  }
  counts.push_back(wide ? sizeof(std::int32_t) : sizeof(std::uint16_t));
  std::size_t size = counts.size() * sizeof(std::uint64_t);
  for (const EncodedDocument& document : encoded) size += document.ids.size() * counts.back() + document.targets.size();
  out.reserve(size);
  put(out, std::span<const std::uint64_t>(counts));
  for (const EncodedDocument& document : encoded) {
    if (wide) {
      put(out, std::span<const std::int32_t>(document.ids));
    } else {
      const std::vector<std::uint16_t> narrow(document.ids.begin(), document.ids.end());
      put(out, std::span<const std::uint16_t>(narrow));
    }
    put(out, std::span<const std::uint8_t>(document.targets));
  }
  return out;
}

// False if too short.
template <class T>
bool take_values(std::span<const std::byte>& bytes, std::uint64_t count, std::vector<T>& values) {
  if (count > bytes.size() / sizeof(T)) return false;
  values.resize(static_cast<std::size_t>(count));
  if (count > 0) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  bytes = bytes.subspan(values.size() * sizeof(T));
  return true;
}

// Inverse; nullopt for other bytes.
std::optional<std::vector<EncodedDocument>> unpack(std::span<const std::byte> bytes, std::size_t documents) {
  std::vector<std::uint64_t> counts;
  if (!take_values(bytes, 2 * documents + 1, counts)) return std::nullopt;
  const bool wide = counts.back() == sizeof(std::int32_t);
  std::vector<EncodedDocument> encoded(documents);
  std::vector<std::uint16_t> narrow;
  for (std::size_t i = 0; i < documents; ++i) {
    EncodedDocument& document = encoded[i];
    const std::uint64_t ids = counts[2 * i], targets = counts[2 * i + 1];
    if (wide ? !take_values(bytes, ids, document.ids) : !take_values(bytes, ids, narrow)) return std::nullopt;
    if (!wide) document.ids.assign(narrow.begin(), narrow.end());
    if (!take_values(bytes, targets, document.targets) || (targets != 0 && targets != ids)) return std::nullopt;
  }
  if (!bytes.empty()) return std::nullopt;
  return encoded;
}

bool read_at(int file, std::uint64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t count = ::pread(file, out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    out = out.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return true;
}

struct RecordHead {
  std::uint64_t index = 0;
  std::uint64_t documents_hash = 0;
  std::uint64_t input_bytes = 0;
  std::uint64_t documents = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t hash = 0;

  [[nodiscard]] std::uint64_t computed_hash(std::span<const std::byte> payload) const {
    return XXH3_64bits_withSeed(this, offsetof(RecordHead, hash), XXH3_64bits(payload.data(), payload.size()));
  }
};

std::span<std::byte> bytes_of(RecordHead& head) {
  return std::as_writable_bytes(std::span(&head, 1));
}

}  // namespace

TokenizeCheckpoint::TokenizeCheckpoint(fs::path path, const std::string& identity) : path_(std::move(path)) {
  static_assert(sizeof(RecordHead) == kRecordHeadWords * sizeof(std::uint64_t));
  QUENCH_CHECK(identity.size() == kIdentityBytes, "the identity of a token journal has {} characters, not {}",
               identity.size(), kIdentityBytes);
  open(identity);
}

TokenizeCheckpoint::~TokenizeCheckpoint() {
  if (index_ + stored_ == 0) remove();
  if (file_ >= 0) ::close(file_);
}

void TokenizeCheckpoint::open(const std::string& identity) {
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  if (file_ < 0) return give_up(errno_text(errno), false);
  struct stat info {};
  if (::fstat(file_, &info) != 0) return give_up(errno_text(errno), false);
  if (!S_ISREG(info.st_mode)) return give_up("it is not a regular file", false);
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return give_up("another process is writing it", false);
  const auto size = static_cast<std::uint64_t>(info.st_size);
  const std::string header = std::string(kMagic) + identity;
  std::string found(std::min<std::size_t>(header.size(), static_cast<std::size_t>(size)), '\0');
  if (!read_at(file_, 0, std::as_writable_bytes(std::span(found)))) return give_up("it cannot be read", false);
  const std::size_t compared = std::min(found.size(), kMagic.size());
  if (std::string_view(found).substr(0, compared) != kMagic.substr(0, compared))
    return give_up("an existing file is not a token journal", false);
  end_ = kHeaderBytes;
  if (found == header) return count_records(size);
  if (::ftruncate(file_, 0) != 0) return give_up(errno_text(errno), false);
  end_ = 0;
  if (write(std::as_bytes(std::span(header)))) end_ = kHeaderBytes;
}

void TokenizeCheckpoint::count_records(std::uint64_t size) {
  RecordHead head;
  for (std::uint64_t at = end_; size - at >= sizeof head && read_at(file_, at, bytes_of(head)); ++stored_) {
    if (head.index != stored_ || head.payload_bytes > size - at - sizeof head) break;
    at += sizeof head + head.payload_bytes;
    input_bytes_ = head.input_bytes;
  }
}

std::optional<std::vector<EncodedDocument>> TokenizeCheckpoint::take(std::span<const Document> documents) {
  if (file_ < 0 || stored_ == 0) return std::nullopt;
  RecordHead head;
  std::vector<std::byte> payload;
  bool whole = read_at(file_, end_, bytes_of(head)) && head.index == index_;
  struct stat info {};
  whole = whole && ::fstat(file_, &info) == 0 &&
          head.payload_bytes <= static_cast<std::uint64_t>(info.st_size) - end_ - sizeof head;
  if (whole) {
    payload.resize(static_cast<std::size_t>(head.payload_bytes));
    whole = read_at(file_, end_ + sizeof head, payload) && head.hash == head.computed_hash(payload);
  }
  const bool same = head.documents == documents.size() && head.documents_hash == hash_documents(documents);
  std::optional<std::vector<EncodedDocument>> encoded;
  if (whole && same) encoded = unpack(payload, documents.size());
  if (!encoded) {
    QUENCH_LOG_WARN("{}: {} of its batches cannot be used and are tokenized again: {}", path_.string(), stored_,
                    whole && !same ? "the input has changed" : "the file is damaged");
    stored_ = 0;
    input_bytes_ = taken_bytes_;
    return std::nullopt;
  }
  --stored_;
  ++index_;
  end_ += sizeof head + head.payload_bytes;
  taken_bytes_ = head.input_bytes;
  return encoded;
}

void TokenizeCheckpoint::append(std::span<const Document> documents, std::span<const EncodedDocument> encoded,
                                std::uint64_t input_bytes) {
  if (file_ < 0) return;
  // Torn or rejected records.
  if (::ftruncate(file_, static_cast<off_t>(end_)) != 0) return give_up(errno_text(errno), true);
  stored_ = 0;
  const std::vector<std::byte> payload = pack(encoded);
  RecordHead head{.index = index_,
                  .documents_hash = hash_documents(documents),
                  .input_bytes = input_bytes,
                  .documents = documents.size(),
                  .payload_bytes = payload.size()};
  head.hash = head.computed_hash(payload);
  if (!write(bytes_of(head)) || !write(payload)) return;
  ++index_;
  input_bytes_ = input_bytes;
}

bool TokenizeCheckpoint::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(end_));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      give_up(errno_text(count < 0 ? errno : ENOSPC), true);  // for the shards' space
      return false;
    }
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    end_ += static_cast<std::uint64_t>(count);
  }
  return true;
}

void TokenizeCheckpoint::give_up(const std::string& reason, bool remove_file) {
  QUENCH_LOG_WARN("cannot write {}: {}; a stopped tokenization will restart from the beginning", path_.string(),
                  reason);
  if (remove_file) remove();
  if (file_ >= 0) ::close(file_);
  file_ = -1;
  stored_ = input_bytes_ = 0;
}

void TokenizeCheckpoint::remove() noexcept {
  if (file_ < 0) return;
  ::unlink(path_.c_str());
  ::close(file_);
  file_ = -1;
  stored_ = input_bytes_ = 0;
}

}  // namespace quench
