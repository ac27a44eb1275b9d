#pragma once
// Codebooks of GGUF's IQ1, IQ2 and IQ3 types: magnitudes, or ternary values, of 4 or 8 neighbouring elements. Data of
// the format, taken from gguf-py (gguf.quants of version 0.19).

#include <cstdint>
#include <vector>

namespace quench {

struct Codebook {
  int points = 0, width = 0;
  std::vector<std::int8_t> values;  // [points, width]
  std::vector<float> columns;       // [width, points]
  float largest = 0, typical = 0;   // maximum and root mean square of magnitudes

  [[nodiscard]] const std::int8_t* point(int index) const { return values.data() + index * width; }
};

[[nodiscard]] const Codebook& iq2_xxs_codebook();  // 256 points of 8, as the next two of 8, 25, 43
[[nodiscard]] const Codebook& iq2_xs_codebook();   // 512
[[nodiscard]] const Codebook& iq2_s_codebook();    // 1024
[[nodiscard]] const Codebook& iq3_xxs_codebook();  // 256 points of 4: 4, 12, .., 52, 62
[[nodiscard]] const Codebook& iq3_s_codebook();    // 512 points of 4: 1, 3, .., 15
[[nodiscard]] const Codebook& iq1_codebook();      // 2048 points of 8: -1, 0, 1

// The codes of a point: values, negative where bit i of `signs` is 1.
void put_point(const Codebook& book, int point, int signs, std::int8_t* codes);

// Eight sign bits of seven: the last makes their number even.
[[nodiscard]] std::uint8_t even_signs(int seven);

}  // namespace quench
