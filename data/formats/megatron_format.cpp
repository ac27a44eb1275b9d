#include "data/formats/megatron_format.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace quench {
namespace {

constexpr std::uint64_t kIndexHeaderBytes = 34;

DType element_of(std::uint8_t code, const std::string& name) {
  switch (code) {
    case 1: return DType::u8;
    case 2: return DType::i8;
    case 3: return DType::i16;
    case 4: return DType::i32;
    case 5: return DType::i64;
    case 8: return DType::u16;
    case 6:
    case 7: QUENCH_FAIL(ErrorCode::unsupported, "{}: holds floating-point values, not token ids", name);
    default: QUENCH_FAIL(ErrorCode::corrupt, "{}: unknown element code {}", name, code);
  }
}

template <class T>
class ArrayReader {
 public:
  ArrayReader(const BinaryFile& file, std::uint64_t offset, std::uint64_t count)
      : file_(file), offset_(offset), left_(count) {}

  [[nodiscard]] T next() {
    if (position_ == block_.size()) {
      block_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(left_, kBlock)));
      QUENCH_CHECK(!block_.empty(), "{}: read past the end of an array", file_.path().string());
      file_.read(offset_, std::as_writable_bytes(std::span(block_)));
      offset_ += block_.size() * sizeof(T);
      left_ -= block_.size();
      position_ = 0;
    }
    return block_[position_++];
  }

 private:
  static constexpr std::uint64_t kBlock = 1 << 16;
  const BinaryFile& file_;
  std::uint64_t offset_;
  std::uint64_t left_;
  std::vector<T> block_;
  std::size_t position_ = 0;
};

}  // namespace

TokenLayout read_megatron_layout(const BinaryFile& index, const BinaryFile& tokens) {
  const std::string name = index.path().string();
  std::array<char, 9> magic{};
  QUENCH_CHECK_AS(ErrorCode::corrupt, index.size() >= kIndexHeaderBytes, "{}: {} bytes is less than the {}-byte header",
                  name, index.size(), kIndexHeaderBytes);
  index.read(0, std::as_writable_bytes(std::span(magic)));
  QUENCH_CHECK_AS(ErrorCode::corrupt, std::memcmp(magic.data(), "MMIDIDX\0\0", 9) == 0,
                  "{}: does not start with MMIDIDX", name);
  const auto version = index.value<std::uint64_t>(9);
  QUENCH_CHECK_AS(ErrorCode::unsupported, version == 1, "{}: Megatron index of version {}; 1 is read", name, version);

  TokenLayout layout;
  layout.element = element_of(index.value<std::uint8_t>(17), name);
  const auto sequences = index.value<std::uint64_t>(18);
  const auto bounds = index.value<std::uint64_t>(26);
  const std::uint64_t body = index.size() - kIndexHeaderBytes;
  const bool counts_fit = sequences <= body / 12 && bounds <= (body - 12 * sequences) / 8;
  const std::uint64_t rest = counts_fit ? body - 12 * sequences - 8 * bounds : 0;
  QUENCH_CHECK_AS(ErrorCode::corrupt, counts_fit && (rest == 0 || rest == sequences),
                  "{}: {} sequences and {} document bounds do not match the file's {} bytes", name, sequences, bounds,
                  index.size());
  QUENCH_CHECK_AS(ErrorCode::corrupt, sequences > 0 && bounds > 0, "{}: {} sequences and {} document bounds", name,
                  sequences, bounds);

  const std::uint64_t width = static_cast<std::uint64_t>(byte_size(layout.element));
  const std::uint64_t capacity = tokens.size() / width;
  ArrayReader<std::int32_t> lengths(index, kIndexHeaderBytes, sequences);
  ArrayReader<std::int64_t> offsets(index, kIndexHeaderBytes + 4 * sequences, sequences);
  ArrayReader<std::int64_t> document_bounds(index, kIndexHeaderBytes + 12 * sequences, bounds);
  std::int64_t bound = document_bounds.next();
  QUENCH_CHECK_AS(ErrorCode::corrupt, bound == 0, "{}: the first document starts at sequence {}, expected 0", name,
                  bound);
  std::uint64_t bounds_read = 1;
  std::uint64_t total = 0;
  for (std::uint64_t i = 0; i < sequences; ++i) {
    const std::int32_t length = lengths.next();
    QUENCH_CHECK_AS(ErrorCode::corrupt, length >= 0, "{}: sequence {} has length {}", name, i, length);
    const std::int64_t offset = offsets.next();
    QUENCH_CHECK_AS(
        ErrorCode::corrupt, offset >= 0 && static_cast<std::uint64_t>(offset) == total * width,
        "{}: sequence {} starts at byte {}, expected {}: sequences must be stored in order and without gaps", name, i,
        offset, total * width);
    QUENCH_CHECK_AS(ErrorCode::corrupt, static_cast<std::uint64_t>(length) <= capacity - total,
                    "{}: sequence {} ends at byte {}, past the end of {} ({} bytes)", name, i,
                    (total + static_cast<std::uint64_t>(length)) * width, tokens.path().string(), tokens.size());
    total += static_cast<std::uint64_t>(length);
    // Equal bounds: empty documents.
    while (bounds_read < bounds && bound <= static_cast<std::int64_t>(i)) {
      const std::int64_t next = document_bounds.next();
      QUENCH_CHECK_AS(ErrorCode::corrupt, next >= bound && next <= static_cast<std::int64_t>(sequences),
                      "{}: document bound {} is {} after {}, with {} sequences", name, bounds_read, next, bound,
                      sequences);
      bound = next;
      ++bounds_read;
    }
    if (bound == static_cast<std::int64_t>(i) + 1 && total > 0 &&
        (layout.document_ends.empty() || layout.document_ends.back() < total))
      layout.document_ends.push_back(total);
  }
  QUENCH_CHECK_AS(ErrorCode::corrupt, bound == static_cast<std::int64_t>(sequences),
                  "{}: the last document ends at sequence {}, expected {}", name, bound, sequences);
  for (; bounds_read < bounds; ++bounds_read)
    QUENCH_CHECK_AS(ErrorCode::corrupt, document_bounds.next() == bound, "{}: document bound {} is out of order", name,
                    bounds_read);
  QUENCH_CHECK_AS(ErrorCode::corrupt, total > 0, "{}: the index lists no tokens", name);
  QUENCH_CHECK_AS(ErrorCode::corrupt, total * width == tokens.size(),
                  "{}: the index lists {} tokens of {} bytes, {} has {} bytes: the files do not belong together", name,
                  total, width, tokens.path().string(), tokens.size());
  layout.token_count = total;
  return layout;
}

}  // namespace quench
