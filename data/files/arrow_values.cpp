#include "data/files/arrow_values.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <set>

#include "core/number/float_types.h"
#include "core/system/check.h"
#include "core/system/utf8.h"
#include "data/files/arrow_text.h"

namespace quench {
namespace {

using Kind = ArrowType::Kind;

constexpr int kMaxArrowDepth = 64;
constexpr std::uint64_t kValueBytes = 8;  // charge of a value to ArrowRow::limit

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

// Kinds by "t", letter and unit: "tdD", "tsn:UTC".
struct TimeFormat {
  std::string_view start;
  Kind kind;
  int width;
  std::int64_t ticks;
};
constexpr TimeFormat kTimeFormats[] = {{"tdD", Kind::date, 4, 0},
                                       {"tdm", Kind::date, 8, 1000},
                                       {"tts", Kind::time, 4, 1},
                                       {"ttm", Kind::time, 4, 1000},
                                       {"ttu", Kind::time, 8, 1000000},
                                       {"ttn", Kind::time, 8, 1000000000},
                                       {"tss:", Kind::timestamp, 8, 1},
                                       {"tsm:", Kind::timestamp, 8, 1000},
                                       {"tsu:", Kind::timestamp, 8, 1000000},
                                       {"tsn:", Kind::timestamp, 8, 1000000000},
                                       {"tDs", Kind::duration, 8, 1},
                                       {"tDm", Kind::duration, 8, 1000},
                                       {"tDu", Kind::duration, 8, 1000000},
                                       {"tDn", Kind::duration, 8, 1000000000}};

int number_at(std::string_view text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// "w:12" -> 12
int number_after_colon(std::string_view format) {
  return number_at(format.substr(std::min(format.find(':') + 1, format.size())));
}

// "d:precision,scale" and perhaps ",bits"
void set_decimal(ArrowType& type) {
  const std::string_view format = type.format;
  const std::size_t comma = format.find(','), second = format.find(',', comma + 1);
  if (comma == std::string_view::npos) return;
  const int bits = second == std::string_view::npos ? 128 : number_at(format.substr(second + 1));
  if (bits != 32 && bits != 64 && bits != 128 && bits != 256) return;
  type.kind = Kind::decimal;
  type.width = bits / 8;
  type.scale = number_at(format.substr(comma + 1));
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
  for (const TimeFormat& time : kTimeFormats) {
    if (!format.starts_with(time.start)) continue;
    set(time.kind, time.width);
    type.ticks = time.ticks;
  }
  if (format.starts_with("d:")) set_decimal(type);
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
  std::set<std::string> names;
  for (std::int64_t i = 0; i < schema.n_children; ++i) {
    type.children.push_back(type_of(*schema.children[i], depth + 1));
    const std::string& name = type.children.back().name;
    QUENCH_CHECK_AS(ErrorCode::corrupt, type.kind != Kind::structure || names.insert(name).second,
                    "two {} have the name \"{}\"; rename one", depth == 0 ? "columns" : "fields of a struct", name);
  }
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

void require_room(bool room, const ArrowRow& row) {
  QUENCH_CHECK_AS(ErrorCode::corrupt, room, "a row of more than {} bytes", row.limit);
}

void use(ArrowRow& row, std::uint64_t bytes) {
  require_room(bytes <= row.limit - row.used, row);
  row.used += bytes;
}

Json text_value(const ArrowType& type, const ArrowArray& array, std::int64_t index, ArrowRow& row) {
  const std::string_view text = text_at(type, array, index);
  use(row, text.size());
  const std::size_t invalid = find_invalid_utf8(text);
  if (invalid == std::string_view::npos && type.json)
    return Json::parse(text, {.max_bytes = text.size(), .source = type.name});
  if (invalid == std::string_view::npos) return text;
  QUENCH_CHECK_AS(ErrorCode::corrupt, type.binary, "column \"{}\": byte {:#04x} is not valid UTF-8", type.name,
                  static_cast<unsigned char>(text[invalid]));
  row.holds_bytes = true;
  return {};
}

Json list_value(const ArrowType& type, const ArrowArray& array, std::int64_t begin, std::int64_t end, ArrowRow& row) {
  Json::Array list;
  const auto size = static_cast<std::uint64_t>(std::max<std::int64_t>(0, end - begin));
  require_room(size <= (row.limit - row.used) / kValueBytes, row);
  list.reserve(size);
  for (std::int64_t i = begin; i < end; ++i) list.push_back(arrow_value(type.children[0], *array.children[0], i, row));
  return list;
}

Json map_value(const ArrowType& type, const ArrowArray& array, std::int64_t begin, std::int64_t end, ArrowRow& row) {
  const ArrowType& entries = type.children[0];
  const ArrowArray& pairs = *array.children[0];
  Json::Object object;
  std::set<std::string> keys;
  for (std::int64_t i = begin; i < end; ++i) {
    const Json given = arrow_value(entries.children[0], *pairs.children[0], pairs.offset + i, row);
    const std::string key = given.is_string() ? given.as_string() : given.dump();
    QUENCH_CHECK_AS(ErrorCode::corrupt, keys.insert(key).second, "column \"{}\": a map holds the key \"{}\" twice",
                    type.name, key);
    object.emplace_back(key, arrow_value(entries.children[1], *pairs.children[1], pairs.offset + i, row));
  }
  return object;
}

std::int64_t time_at(const ArrowType& type, const ArrowArray& array, std::int64_t index) {
  return type.width == 4 ? load<std::int32_t>(array, 1, index) : load<std::int64_t>(array, 1, index);
}

std::string timed_text(const ArrowType& type, const ArrowArray& array, std::int64_t index) {
  const std::int64_t time = time_at(type, array, index);
  switch (type.kind) {
    case Kind::date:
      return date_text(
          type.ticks == 0 ? time : std::chrono::floor<std::chrono::days>(std::chrono::milliseconds(time)).count());
    case Kind::time: return time_text(time, type.ticks);
    case Kind::timestamp: return timestamp_text(time, type.ticks, std::string_view(type.format).substr(4));
    default: return duration_text(time, type.ticks);
  }
}

std::string decimal_at(const ArrowType& type, const ArrowArray& array, std::int64_t index) {
  const auto width = static_cast<std::size_t>(type.width);
  const auto* bytes = static_cast<const std::byte*>(array.buffers[1]) + static_cast<std::size_t>(index) * width;
  return decimal_text({bytes, width}, type.scale);
}

// Dictionary indices have no child arrays: a copy of the array.
Json dictionary_value(const ArrowType& type, const ArrowArray& array, std::int64_t index, ArrowRow& row) {
  ArrowArray indices = array;
  indices.dictionary = nullptr;
  const Json at = arrow_value(type.children[0], indices, index, row);
  const std::int64_t size = array.dictionary->length;
  QUENCH_CHECK_AS(ErrorCode::corrupt, at.is_integer() && at.as_int() >= 0 && at.as_int() < size,
                  "column \"{}\": dictionary index {} is out of bounds: the dictionary has {} values", type.name,
                  at.dump(), size);
  return arrow_value(type.children[1], *array.dictionary, at.as_int(), row);
}

}  // namespace

ArrowType arrow_type(const ArrowSchema& schema) {
  return type_of(schema, 0);
}

std::string unreadable_type(const ArrowType& type) {
  if (type.kind == Kind::other) {
    const std::string_view format = type.format;
    if (format.starts_with("+u")) return "union";
    if (format.starts_with("ti")) return "interval";
    return format == "+r" ? "run-end encoded" : fmt::format("Arrow format {}", format);
  }
  for (const ArrowType& child : type.children)
    if (std::string name = unreadable_type(child); !name.empty()) return name;
  return {};
}

Json arrow_value(const ArrowType& type, const ArrowArray& array, std::int64_t at, ArrowRow& row) {
  use(row, kValueBytes);
  const std::int64_t index = array.offset + at;
  if (type.kind == Kind::null || type.kind == Kind::other) return {};
  if (array.n_buffers > 0 && array.buffers[0] != nullptr && !bit(array, 0, index)) return {};
  switch (type.kind) {
    case Kind::boolean: return bit(array, 1, index);
    case Kind::integer: return integer_at(array, index, type.width);
    case Kind::natural: return natural_at(array, index, type.width);
    case Kind::real: return real_at(array, index, type.width);
    case Kind::text:
    case Kind::text_view:
    case Kind::fixed_text: return text_value(type, array, index, row);
    case Kind::list:
      return list_value(type, array, offset_at(array, 1, index, type.width), offset_at(array, 1, index + 1, type.width),
                        row);
    case Kind::list_view: {
      const std::int64_t begin = offset_at(array, 1, index, type.width);
      return list_value(type, array, begin, begin + offset_at(array, 2, index, type.width), row);
    }
    case Kind::fixed_list: return list_value(type, array, index * type.width, (index + 1) * type.width, row);
    case Kind::map:
      return map_value(type, array, offset_at(array, 1, index, 4), offset_at(array, 1, index + 1, 4), row);
    case Kind::structure: {
      Json::Object object;
      object.reserve(type.children.size());
      for (std::size_t i = 0; i < type.children.size(); ++i) {
        Json value = arrow_value(type.children[i], *array.children[i], index, row);
        if (!value.is_null()) object.emplace_back(type.children[i].name, std::move(value));
      }
      return object;
    }
    case Kind::dictionary: return dictionary_value(type, array, at, row);
    case Kind::date:
    case Kind::time:
    case Kind::timestamp:
    case Kind::duration: return timed_text(type, array, index);
    case Kind::decimal: return decimal_at(type, array, index);
    default: return {};
  }
}

}  // namespace quench
