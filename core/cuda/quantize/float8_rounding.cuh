#pragma once
// Rounding policies of 8-bit casts: nearest by instruction, or stochastic (stochastic_float8.h), bit-identical to the
// CPU.

#include "core/cuda/common/philox.cuh"
#include "core/cuda/quantize/quantize_common.cuh"
#include "core/number/stochastic_float8.h"

namespace quench::cuda {

// Eight elements of a row times `factor` (scalar or Piece), column a multiple of eight.
struct NearestRounding {
  template <class Element, class Scale>
  __device__ uint2 encode(const Piece& x, const Scale& factor, std::int64_t, std::int64_t) const {
    return encode_piece<Element>(x, factor);
  }
};

struct StochasticRounding {
  std::uint64_t key;  // random_block's
  std::uint64_t step;
  std::uint64_t first_row;

  explicit StochasticRounding(const Float8Rounding& rounding)
      : key(philox_key(rounding.key->seed, rounding.key->stream)),
        step(rounding.key->step),
        first_row(rounding.first_row) {}

  template <class Element>
  __device__ uint2 encode(const Piece& x, float factor, std::int64_t row, std::int64_t column) const {
    return encode<Element>(x, repeated(factor), row, column);
  }
  template <class Element>
  __device__ uint2 encode(const Piece& x, const Piece& factor, std::int64_t row, std::int64_t column) const {
    std::uint32_t draws[4], codes[2] = {};
    block(draws, static_cast<std::uint32_t>(first_row + static_cast<std::uint64_t>(row)),
          static_cast<std::uint32_t>(column / kPiece));
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      const std::uint32_t draw = i % 2 == 0 ? draws[i / 2] & 0xFFFFu : draws[i / 2] >> 16;
      codes[i / 4] |= std::uint32_t{stochastic_round<Element>(x[i] * factor[i], draw)} << (i % 4 * 8);
    }
    return make_uint2(codes[0], codes[1]);
  }

 private:
  __device__ void block(std::uint32_t (&c)[4], std::uint32_t row, std::uint32_t group) const {
    c[0] = group;
    c[1] = row;
    c[2] = low_word(step);
    c[3] = high_word(step);
    std::uint32_t key0 = low_word(key), key1 = high_word(key);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
      philox_round(c, key0, key1);
      advance_keys(key0, key1);
    }
  }
};
static_assert(kRoundingsPerBlock == kPiece);

template <class Body>
void with_rounding(const Float8Rounding& rounding, const Body& body) {
  if (rounding.key)
    body(StochasticRounding(rounding));
  else
    body(NearestRounding{});
}

}  // namespace quench::cuda
