#include "export/formats/gguf/head_parser.h"

#include <bit>
#include <cstring>
#include <set>

#include "core/number/dtype.h"
#include "core/system/utf8.h"
#include "export/formats/gguf/metadata.h"
#include "export/formats/gguf/types.h"

namespace quench {
namespace {

// Array items take many times their file size.
constexpr std::uint64_t kMostItems = 1'000'000, kMostInArrays = std::uint64_t{1} << 22,
                        kMostText = std::uint64_t{1} << 26;
constexpr int kMostAxes = 4;

enum class ValueType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

struct NeedMore {};  // incomplete header

class Cursor {
 public:
  Cursor(std::span<const std::uint8_t> bytes, std::uint64_t file_size, std::string_view source)
      : bytes_(bytes), file_size_(file_size), source_(source) {}

  template <class T>
  T number() {
    T value;
    take(&value, sizeof value);
    return value;
  }

  std::string text(std::string_view what, std::uint64_t most = kMostText) {
    const auto length = number<std::uint64_t>();
    check(length <= most && length <= left(), "{} of {} bytes at {}", what, length, position_);
    std::string value(static_cast<std::size_t>(std::min<std::uint64_t>(length, bytes_.size() - position_)), '\0');
    if (value.size() < length) throw NeedMore{};
    take(value.data(), value.size());
    check(find_invalid_utf8(value) == std::string::npos, "{} at {} is not UTF-8", what, position_ - length);
    return value;
  }

  // Throws unless they fit in the file.
  void check_count(std::uint64_t count, std::uint64_t width, std::string_view what) {
    check(count <= left() / width, "{} {} at {}: more than the file can hold", count, what, position_);
  }

  // Within the item limit.
  bool spend_items(std::uint64_t count) {
    if (count > kMostInArrays - items_) return false;
    items_ += count;
    return true;
  }

  template <class... Args>
  void check(bool condition, fmt::format_string<Args...> text, Args&&... args) const {
    if (!condition)
      QUENCH_FAIL(ErrorCode::corrupt, "{}: not a valid GGUF file: {}", source_,
                  fmt::format(text, std::forward<Args>(args)...));
  }

  [[nodiscard]] std::uint64_t position() const noexcept { return position_; }
  [[nodiscard]] std::string_view source() const noexcept { return source_; }

 private:
  [[nodiscard]] std::uint64_t left() const noexcept { return file_size_ - position_; }

  void take(void* to, std::size_t count) {
    static_assert(std::endian::native == std::endian::little);
    check(count <= left(), "the head ends at {}, the end of the file", position_);
    if (count > bytes_.size() - position_) throw NeedMore{};
    std::memcpy(to, bytes_.data() + position_, count);
    position_ += count;
  }

  std::span<const std::uint8_t> bytes_;
  std::uint64_t file_size_;
  std::string_view source_;
  std::size_t position_ = 0;
  std::uint64_t items_ = 0;
};

Json read_value(Cursor& in, std::uint32_t type, bool nested) {
  switch (static_cast<ValueType>(type)) {
    case ValueType::u8: return in.number<std::uint8_t>();
    case ValueType::i8: return in.number<std::int8_t>();
    case ValueType::u16: return in.number<std::uint16_t>();
    case ValueType::i16: return in.number<std::int16_t>();
    case ValueType::u32: return in.number<std::uint32_t>();
    case ValueType::i32: return in.number<std::int32_t>();
    case ValueType::f32: return static_cast<double>(in.number<float>());
    case ValueType::boolean: return in.number<std::uint8_t>() != 0;
    case ValueType::string: return in.text("a string");
    case ValueType::u64: return in.number<std::uint64_t>();
    case ValueType::i64: return in.number<std::int64_t>();
    case ValueType::f64: return in.number<double>();
    case ValueType::array: {
      in.check(!nested, "an array within an array at {}", in.position());
      const auto item = in.number<std::uint32_t>();
      const auto count = in.number<std::uint64_t>();
      in.check(in.spend_items(count), "an array of {} items at {}: more than {} in all arrays", count, in.position(),
               kMostInArrays);
      in.check_count(count, 1, "items");
      Json array = Json::array();
      for (std::uint64_t i = 0; i < count; ++i) array.push_back(read_value(in, item, true));
      return array;
    }
  }
  in.check(false, "value type {} at {}", type, in.position());
  return {};
}

std::uint64_t alignment_of(Cursor& in, const GgufHead& head) {
  const auto found = head.metadata.find("general.alignment");
  if (found == head.metadata.end()) return kGgufAlignment;
  const Json& value = found->second;
  const bool valid = value.is_integer() && value.as_double() >= 8 && value.as_double() <= 1 << 20 &&
                     std::has_single_bit(static_cast<std::uint64_t>(value.as_int()));
  in.check(valid, "general.alignment is {}", value.dump());
  return value.as_uint();
}

// The offset must follow the tensors before.
GgufEntry read_tensor(Cursor& in, std::uint64_t& offset) {
  GgufEntry entry;
  entry.name = in.text("a tensor's name", kGgufMaxName);
  in.check(!entry.name.empty(), "a tensor without a name at {}", in.position());
  const auto axes = in.number<std::uint32_t>();
  in.check(axes >= 1 && axes <= kMostAxes, "tensor {} has {} axes", entry.name, axes);
  std::vector<std::int64_t> sizes(axes);
  std::uint64_t elements = 1;
  for (std::uint32_t axis = 0; axis < axes; ++axis) {
    const auto size = in.number<std::uint64_t>();
    in.check(size > 0 && size <= std::uint64_t{1} << 48 && !__builtin_mul_overflow(elements, size, &elements),
             "tensor {} has an axis of {}", entry.name, size);
    sizes[axes - 1 - axis] = static_cast<std::int64_t>(size);
  }
  entry.shape = Shape(sizes);
  entry.type = in.number<std::uint32_t>();
  const auto layout = gguf_type_layout(entry.type);
  QUENCH_CHECK_AS(ErrorCode::unsupported, layout.has_value(), "{}: tensor {} has type {}; known: {}", in.source(),
                  entry.name, gguf_type_name(entry.type), gguf_type_names());
  in.check(static_cast<std::uint64_t>(sizes.back()) % layout->elements == 0,
           "tensor {}: rows of {} are no multiple of {}", entry.name, sizes.back(), layout->elements);
  in.check(!__builtin_mul_overflow(elements / layout->elements, layout->bytes, &entry.bytes), "tensor {} is too large",
           entry.name);
  const auto begin = in.number<std::uint64_t>();
  in.check(begin == offset, "tensor {} lies at {}, expected {}", entry.name, begin, offset);
  entry.begin = begin;
  return entry;
}

GgufHead parse(Cursor in, std::uint64_t file_size) {
  char magic[4];
  for (char& c : magic) c = in.number<char>();
  in.check(std::memcmp(magic, "GGUF", 4) == 0, "it does not begin with GGUF");
  const auto version = in.number<std::uint32_t>();
  QUENCH_CHECK_AS(ErrorCode::unsupported, version == 2 || version == 3, "{}: GGUF version {}; 2 and 3 can be read",
                  in.source(), version);
  const auto tensors = in.number<std::uint64_t>(), keys = in.number<std::uint64_t>();
  in.check(tensors <= kMostItems && keys <= kMostItems, "{} tensors and {} keys", tensors, keys);
  in.check_count(keys, 12, "keys");
  GgufHead head;
  for (std::uint64_t i = 0; i < keys; ++i) {
    std::string key = in.text("a key", 1 << 16);
    Json value = read_value(in, in.number<std::uint32_t>(), false);
    in.check(head.metadata.emplace(key, std::move(value)).second, "key {} twice", key);
  }
  in.check_count(tensors, 24, "tensors");
  const std::uint64_t alignment = alignment_of(in, head);
  std::uint64_t offset = 0;
  std::set<std::string> names;
  for (std::uint64_t i = 0; i < tensors; ++i) {
    GgufEntry entry = read_tensor(in, offset);
    in.check(names.insert(entry.name).second, "tensor {} twice", entry.name);
    in.check(entry.bytes <= file_size && offset <= file_size, "tensor {} ends past the end of the file", entry.name);
    offset = gguf_padded(offset + entry.bytes, alignment);
    head.tensors.push_back(std::move(entry));
  }
  const std::uint64_t data = gguf_padded(in.position(), alignment);
  for (GgufEntry& entry : head.tensors) {
    entry.begin += data;
    in.check(entry.begin <= file_size && entry.bytes <= file_size - entry.begin,
             "tensor {} ends past the end of the file", entry.name);
  }
  return head;
}

}  // namespace

std::optional<GgufHead> parse_gguf_head(std::span<const std::uint8_t> head, std::uint64_t file_size,
                                        std::string_view source) {
  try {
    return parse(Cursor(head, file_size, source), file_size);
  } catch (const NeedMore&) {
    return std::nullopt;
  }
}

}  // namespace quench
