#include "data/files/arrow_values.h"

#include <charconv>
#include <cstring>

#include "core/number/float_types.h"
#include "core/system/check.h"
#include "core/system/utf8.h"

namespace quench {
namespace {

using Kind = ArrowType::Kind;

constexpr int kMaxArrowDepth = 64;

struct PlainFormat {
  char letter;
  Kind kind;
  int width;
  bool binary = false;
};
constexpr PlainFormat kPlainFormats[] = {{'n', Kind::null, 0},       {'b', Kind::boolean, 0},   {'c', Kind::integer, 1},
                                         {'s', Kind::integer, 2},    {'i', Kind::integer, 4},   {'l', Kind::integer, 8},
                                         {'C', Kind::natural, 1},    {'S', Kind::natural, 2},   {'I', Kind::natural, 4},
                                         {'L', Kind::natural, 8},    {'e', Kind::real, 2},      {'f', Kind::real, 4},
                                         {'g', Kind::real, 8},       {'u', Kind::text, 4},      {'U', Kind::text, 8},
                                         {'z', Kind::text, 4, true}, {'Z', Kind::text, 8, true}};

int number_after_colon(std::string_view format) {
  const std::size_t colon = format.find(':');
  int number = 0;
  if (colon != std::string_view::npos)
    std::from_chars(format.data() + colon + 1, format.data() + format.size(), number);
  return number;
}

void set_kind(ArrowType& type) {
  const std::string_view format = type.format;
  const auto set = [&](Kind kind, int width = 0, bool binary = false) {
    type.kind = kind;
    type.width = width;
    type.binary = binary;
  };
  if (format.size() == 1)
    for (const PlainFormat& plain : kPlainFormats)
      if (plain.letter == format[0]) set(plain.kind, plain.width, plain.binary);
  if (format == "vu") set(Kind::text_view);
  if (format == "vz") set(Kind::text_view, 0, true);
  if (format.starts_with("w:")) set(Kind::fixed_text, number_after_colon(format), true);
  if (format == "+s") set(Kind::structure);
  if (format == "+m") set(Kind::map);
  if (format == "+l") set(Kind::list, 4);
  if (format == "+L") set(Kind::list, 8);
  if (format == "+vl") set(Kind::list_view, 4);
  if (format == "+vL") set(Kind::list_view, 8);
  if (format.starts_with("+w:")) set(Kind::fixed_list, number_after_colon(format));
}

// Count, then length-prefixed keys and values; empty if absent.
std::string_view metadata_value(const char* metadata, std::string_view key) {
  if (metadata == nullptr) return {};
  const auto take_length = [&] {
    std::int32_t length = 0;
    std::memcpy(&length, metadata, sizeof length);
    metadata += sizeof length;
    return length;
  };
  const auto take_text = [&] {
    const std::int32_t length = take_length();
    const std::string_view text(metadata, static_cast<std::size_t>(length));
    metadata += length;
    return text;
  };
  for (std::int32_t left = take_length(); left > 0; --left) {
    const std::string_view name = take_text(), value = take_text();
    if (name == key) return value;
  }
  return {};
}

ArrowType type_of(const ArrowSchema& schema, int depth) {
  QUENCH_CHECK_AS(ErrorCode::unsupported, depth < kMaxArrowDepth, "a column's type nests deeper than {}",
                  kMaxArrowDepth);
  ArrowType type{.name = schema.name != nullptr ? schema.name : "", .format = schema.format};
  set_kind(type);
  type.json = metadata_value(schema.metadata, "ARROW:extension:name") == "arrow.json";
  if (schema.dictionary != nullptr) {
    ArrowType index = type;
    type.kind = Kind::dictionary;
    type.children.push_back(std::move(index));
    type.children.push_back(type_of(*schema.dictionary, depth + 1));
    return type;
  }
  for (std::int64_t i = 0; i < schema.n_children; ++i) type.children.push_back(type_of(*schema.children[i], depth + 1));
  return type;
}

template <class T>
T load(const ArrowArray& array, int buffer, std::int64_t index) {
  T value{};
  std::memcpy(&value, static_cast<const char*>(array.buffers[buffer]) + index * static_cast<std::int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

bool bit(const ArrowArray& array, int buffer, std::int64_t index) {
  return (static_cast<const std::uint8_t*>(array.buffers[buffer])[index / 8] >> (index % 8) & 1) != 0;
}

std::int64_t offset_at(const ArrowArray& array, int buffer, std::int64_t index, int width) {
  return width == 4 ? load<std::int32_t>(array, buffer, index) : load<std::int64_t>(array, buffer, index);
}

Json integer_at(const ArrowArray& array, std::int64_t index, int width) {
  switch (width) {
    case 1: return load<std::int8_t>(array, 1, index);
    case 2: return load<std::int16_t>(array, 1, index);
    case 4: return load<std::int32_t>(array, 1, index);
    default: return load<std::int64_t>(array, 1, index);
  }
}

Json natural_at(const ArrowArray& array, std::int64_t index, int width) {
  switch (width) {
    case 1: return load<std::uint8_t>(array, 1, index);
    case 2: return load<std::uint16_t>(array, 1, index);
    case 4: return load<std::uint32_t>(array, 1, index);
    default: return load<std::uint64_t>(array, 1, index);
  }
}

double real_at(const ArrowArray& array, std::int64_t index, int width) {
  if (width == 2) return static_cast<double>(static_cast<float>(load<float16>(array, 1, index)));
  return width == 4 ? static_cast<double>(load<float>(array, 1, index)) : load<double>(array, 1, index);
}

std::string_view text_at(const ArrowType& type, const ArrowArray& array, std::int64_t index) {
  const auto* bytes = static_cast<const char*>(array.buffers[type.kind == Kind::text ? 2 : 1]);
  if (type.kind == Kind::fixed_text) return {bytes + index * type.width, static_cast<std::size_t>(type.width)};
  if (type.kind == Kind::text) {
    const std::int64_t begin = offset_at(array, 1, index, type.width);
    const std::int64_t end = offset_at(array, 1, index + 1, type.width);
    return end > begin ? std::string_view(bytes + begin, static_cast<std::size_t>(end - begin)) : std::string_view();
  }
  struct View {
    std::int32_t length, prefix, buffer, offset;
  };
  const auto view = load<View>(array, 1, index);
  const auto length = static_cast<std::size_t>(view.length);
  constexpr std::size_t kInline = 12;
  if (length <= kInline) return {bytes + index * static_cast<std::int64_t>(sizeof(View)) + sizeof view.length, length};
  return {static_cast<const char*>(array.buffers[2 + view.buffer]) + view.offset, length};
}

Json text_value(const ArrowType& type, const ArrowArray& array, std::int64_t index) {
  const std::string_view text = text_at(type, array, index);
  const std::size_t invalid = find_invalid_utf8(text);
  if (invalid == std::string_view::npos && type.json)
    return Json::parse(text, {.max_bytes = text.size(), .source = type.name});
  if (invalid == std::string_view::npos) return text;
  QUENCH_CHECK_AS(ErrorCode::corrupt, type.binary, "column \"{}\": byte {:#04x} is not valid UTF-8", type.name,
                  static_cast<unsigned char>(text[invalid]));
  return {};
}

Json list_value(const ArrowType& type, const ArrowArray& array, std::int64_t begin, std::int64_t end) {
  Json::Array list;
  list.reserve(static_cast<std::size_t>(end - begin));
  for (std::int64_t i = begin; i < end; ++i) list.push_back(arrow_value(type.children[0], *array.children[0], i));
  return list;
}

Json map_value(const ArrowType& type, const ArrowArray& array, std::int64_t begin, std::int64_t end) {
  const ArrowType& entries = type.children[0];
  const ArrowArray& pairs = *array.children[0];
  Json object = Json::object();
  for (std::int64_t i = begin; i < end; ++i) {
    const Json key = arrow_value(entries.children[0], *pairs.children[0], pairs.offset + i);
    Json value = arrow_value(entries.children[1], *pairs.children[1], pairs.offset + i);
    if (!value.is_null()) object.set(key.is_string() ? key.as_string() : key.dump(), std::move(value));
  }
  return object;
}

}  // namespace

ArrowType arrow_type(const ArrowSchema& schema) {
  return type_of(schema, 0);
}

Json arrow_value(const ArrowType& type, const ArrowArray& array, std::int64_t row) {
  const std::int64_t index = array.offset + row;
  if (type.kind == Kind::null || type.kind == Kind::other) return {};
  if (array.n_buffers > 0 && array.buffers[0] != nullptr && !bit(array, 0, index)) return {};
  switch (type.kind) {
    case Kind::boolean: return bit(array, 1, index);
    case Kind::integer: return integer_at(array, index, type.width);
    case Kind::natural: return natural_at(array, index, type.width);
    case Kind::real: return real_at(array, index, type.width);
    case Kind::text:
    case Kind::text_view:
    case Kind::fixed_text: return text_value(type, array, index);
    case Kind::list:
      return list_value(type, array, offset_at(array, 1, index, type.width),
                        offset_at(array, 1, index + 1, type.width));
    case Kind::list_view: {
      const std::int64_t begin = offset_at(array, 1, index, type.width);
      return list_value(type, array, begin, begin + offset_at(array, 2, index, type.width));
    }
    case Kind::fixed_list: return list_value(type, array, index * type.width, (index + 1) * type.width);
    case Kind::map: return map_value(type, array, offset_at(array, 1, index, 4), offset_at(array, 1, index + 1, 4));
    case Kind::structure: {
      Json::Object object;
      object.reserve(type.children.size());
      for (std::size_t i = 0; i < type.children.size(); ++i) {
        Json value = arrow_value(type.children[i], *array.children[i], index);
        if (!value.is_null()) object.emplace_back(type.children[i].name, std::move(value));
      }
      return object;
    }
    case Kind::dictionary: {
      // Dictionary indices have no child arrays: a copy of the array.
      ArrowArray indices = array;
      indices.dictionary = nullptr;
      return arrow_value(type.children[1], *array.dictionary, arrow_value(type.children[0], indices, row).as_int());
    }
    default: return {};
  }
}

}  // namespace quench
