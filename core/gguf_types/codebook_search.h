#pragma once
// Codebook indices, signs and scales of 256 elements with the least weighted squared error: the search of the IQ2 and
// IQ3 types.

#include <cstdint>
#include <vector>

#include "core/gguf_types/bit_layouts.h"
#include "core/gguf_types/codebooks.h"
#include "core/gguf_types/scale_search.h"

namespace quench {

// x ~ unit * step * (2 * scales[block] + 1) * sign * codebook value.
struct CodebookBlock {
  float unit = 0;
  int scales[16] = {};          // 0 to 15
  int points[64] = {};          // by cell, `width` elements each
  std::uint8_t signs[32] = {};  // bit i of byte j: element 8 j + i is negative
};

struct CodebookForm {
  const Codebook* book;
  bool even_signs;  // among 8 elements, an even number is negative
  int elements;     // that share a scale
  float step;
};

// Every point of the codebook is tried for each cell. A scale is found from several starts by alternating points and
// least squares; then the integers of all scales and the unit, as in super_scales.h.
class CodebookSearch {
 public:
  CodebookSearch(const CodebookForm& form, const float* x, const float* importance);
  [[nodiscard]] CodebookBlock find();

 private:
  struct Choice {
    int point = 0;
    bool flipped = false;
  };

  void load_cell(int cell);
  // Nearest points of a block under a scale above 0, and their sums.
  ScaleSums choose(int block, float scale, Choice* choices) const;
  [[nodiscard]] float block_scale(int block) const;
  double round_scales(float unit, CodebookBlock& out, double& numerator, double& denominator) const;
  void store(const Choice* choices, int block, CodebookBlock& out) const;
  [[nodiscard]] int weakest(int cell, int point) const;

  CodebookForm form_;
  int points_, width_, cells_, blocks_, cells_per_block_;
  float weights_[kSuperBlock], weighted_[kSuperBlock];  // weight, and its product with the magnitude
  std::uint8_t signs_[kSuperBlock / 8];
  float magnitudes_[kSuperBlock];
  float scales_[16];
  // [cells, points]: twice the sums of weight * magnitude * value; those with the cheapest sign wrong; the sums of
  // weight * value^2.
  std::vector<float>&dots_, &flipped_, &norms_;
  bool shared_norms_;
};

}  // namespace quench
