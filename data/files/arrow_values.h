#pragma once
// Values of record batches in the Arrow C data interface, as JSON.

#include <cstdint>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "data/arrow/arrow_interface.h"

namespace quench {

// The type of a column or of what is nested in it.
struct ArrowType {
  enum class Kind : std::uint8_t {
    null,
    boolean,
    integer,  // with sign
    natural,
    real,
    text,       // offsets, then bytes
    text_view,  // views of 16 bytes, inline or into one of several buffers
    fixed_text,
    list,
    list_view,
    fixed_list,
    structure,
    map,
    dictionary,
    other,  // times, decimals, unions: has no value here
  };
  Kind kind = Kind::other;
  std::string name;
  std::string format;                 // as the interface writes it
  int width = 0;                      // bytes of a number or of an offset; of fixed_text and fixed_list the length
  bool binary = false;                // text that need not be UTF-8
  bool json = false;                  // text that is a value in JSON (the extension type arrow.json)
  std::vector<ArrowType> children{};  // of a dictionary its index, then its values
};

// Throws unsupported for types nested deeper than 64.
[[nodiscard]] ArrowType arrow_type(const ArrowSchema& schema);

// The value of row `row` of an array of the type: numbers, strings, arrays, objects; of JSON text its value. Members of
// a struct that are null are left out, as records in JSON leave out what they do not have; elements of a list that are
// null stay. Maps become objects. Values of Kind::other, and bytes that are no UTF-8 in a column of bytes, are null.
// Throws corrupt for text that is not UTF-8, or not JSON where it should be.
[[nodiscard]] Json arrow_value(const ArrowType& type, const ArrowArray& array, std::int64_t row);

}  // namespace quench
