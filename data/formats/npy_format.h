#pragma once
// NumPy .npy arrays of token ids (numpy.lib.format, versions 1.0 to 3.0): "\x93NUMPY", u8 major, u8 minor, header
// length (u16 in version 1, u32 after), then a Python dict literal with exactly the keys 'descr', 'fortran_order' and
// 'shape'. The dict is matched against a fixed grammar; nothing is evaluated. A 2-D array is one document a row.

#include <string_view>

#include "data/formats/token_layout.h"

namespace quench {

struct NpyHeader {
  DType element = DType::u16;
  std::uint64_t rows = 0;     // 1 for a 1-D array
  std::uint64_t columns = 0;  // tokens of a row
  bool two_dimensional = false;
};

// Parses the dict. Throws corrupt (not this grammar) or unsupported (element type, byte order, dimensions, Fortran
// order of a 2-D array); `source` names the file.
[[nodiscard]] NpyHeader parse_npy_header(std::string_view text, std::string_view source);

[[nodiscard]] TokenLayout read_npy_layout(const BinaryFile& file);

}  // namespace quench
