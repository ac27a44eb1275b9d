#pragma once
// NumPy .npy token ids (numpy.lib.format 1.0 to 3.0): "\x93NUMPY", u8 major, u8 minor, header length (u16 in version 1,
// u32 after), Python dict literal with exactly 'descr', 'fortran_order' and 'shape', parsed with a fixed grammar. A row
// of a 2-D array is a document.

#include <string_view>

#include "data/formats/token_layout.h"

namespace quench {

struct NpyHeader {
  DType element = DType::u16;
  std::uint64_t rows = 0;     // 1 for 1-D arrays
  std::uint64_t columns = 0;  // tokens per row
  bool two_dimensional = false;
};

// Throws corrupt (grammar) or unsupported (dtype, byte order, rank, Fortran order of a 2-D array); `source`: for
// errors.
[[nodiscard]] NpyHeader parse_npy_header(std::string_view text, std::string_view source);

[[nodiscard]] TokenLayout read_npy_layout(const BinaryFile& file);

}  // namespace quench
