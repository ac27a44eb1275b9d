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
    other,  // not converted: times, decimals, unions
  };
  Kind kind = Kind::other;
  std::string name;
  std::string format;
  int width = 0;                      // of a number or offset; length of fixed_text and fixed_list
  bool binary = false;                // need not be UTF-8
  bool json = false;                  // extension type arrow.json
  std::vector<ArrowType> children{};  // dictionary: index, then values
};

// Throws unsupported beyond 64 nesting levels.
[[nodiscard]] ArrowType arrow_type(const ArrowSchema& schema);

// JSON text is parsed. Null struct members are omitted, null list elements kept. Maps become objects. Kind::other, and
// non-UTF-8 bytes of a binary column, are null. Throws corrupt for invalid UTF-8 or JSON.
[[nodiscard]] Json arrow_value(const ArrowType& type, const ArrowArray& array, std::int64_t row);

}  // namespace quench
