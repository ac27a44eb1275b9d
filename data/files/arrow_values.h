#pragma once
// Arrow C data interface to JSON.

#include <cstdint>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "data/arrow/arrow_interface.h"

namespace quench {

// May be nested.
struct ArrowType {
  enum class Kind : std::uint8_t {
    null,
    boolean,
    integer,  // signed
    natural,
    real,
    text,       // offsets, bytes
    text_view,  // 16-byte views, inline or into a buffer
    fixed_text,
    list,
    list_view,
    fixed_list,
    structure,
    map,
    dictionary,
    date,
    time,
    timestamp,
    duration,
    decimal,
    other,  // not converted: unions, intervals, run ends
  };
  Kind kind = Kind::other;
  std::string name;
  std::string format;
  int width = 0;                      // bytes of a number, time or offset; length of fixed_text and fixed_list
  std::int64_t ticks = 0;             // per second; dates in days: 0
  int scale = 0;                      // digits of a decimal after the point
  bool binary = false;                // need not be UTF-8
  bool json = false;                  // extension type arrow.json
  std::vector<ArrowType> children{};  // dictionary: index, then values
};

// Throws unsupported beyond 64 nesting levels, corrupt for two columns or fields of one name.
[[nodiscard]] ArrowType arrow_type(const ArrowSchema& schema);
// "union" for a column that holds one at any depth; empty for a column that can be converted.
[[nodiscard]] std::string unreadable_type(const ArrowType& type);

// Conversion of one row.
struct ArrowRow {
  std::uint64_t limit = 0;  // bytes: 8 for each value and those of its text
  std::uint64_t used = 0;
  bool holds_bytes = false;  // a value of a binary column that is not UTF-8, converted to null
};

// JSON text is parsed. Null struct members are omitted, null elements of lists and maps kept. Maps become objects;
// times and decimals the texts of arrow_text.h. Throws corrupt for invalid UTF-8 or JSON, a dictionary index out of
// bounds, a map with two equal keys, and rows above the limit.
[[nodiscard]] Json arrow_value(const ArrowType& type, const ArrowArray& array, std::int64_t index, ArrowRow& row);

}  // namespace quench
