#pragma once
// NumPy .npy arrays of token ids (numpy.lib.format, versions 1.0 to 3.0): "\x93NUMPY", u8 major, u8 minor, header
// length (u16 in version 1, u32 after), Python dict literal with exactly the keys 'descr', 'fortran_order' and 'shape'.
// The dict is parsed with a fixed grammar, never evaluated. A row of a 2-D array is a document.

#include <string_view>

#include "data/formats/token_layout.h"

namespace quench {

struct NpyHeader {
  DType element = DType::u16;
  std::uint64_t rows = 0;     // 1 for 1-D arrays
  std::uint64_t columns = 0;  // tokens per row
  bool two_dimensional = false;
};

// Parser of the dict. Throws corrupt (grammar) or unsupported (dtype, byte order, rank, Fortran order of a 2-D array);
// `source`: file name in errors.
[[nodiscard]] NpyHeader parse_npy_header(std::string_view text, std::string_view source);

[[nodiscard]] TokenLayout read_npy_layout(const BinaryFile& file);

}  // namespace quench
