#pragma once
// How casts to float8 choose codes, as a type of their kernels: to nearest by instruction, or stochastically
// (core/stochastic_float8.h) with the CPU's draws.

#include "core/cuda/quantize_common.cuh"
#include "core/stochastic_float8.h"

namespace quench::cuda {

// For the codes of eight neighbours of a row, the first at a multiple of eight columns. `scale`: one, or a Group.
struct NearestRounding {
  template <class Element, class Scale>
  __device__ uint2 encode(const Group& x, const Scale& scale, std::int64_t, std::int64_t) const {
    return encode_group<Element>(x, scale);
  }
};

struct StochasticRounding {
  std::uint64_t key;  // that random_block derives
  std::uint64_t step;
  std::uint64_t first_row;

  explicit StochasticRounding(const Float8Rounding& rounding)
      : key(mix64(rounding.key->seed) ^ mix64(rounding.key->stream + 0x9E3779B97F4A7C15ull)),
        step(rounding.key->step),
        first_row(rounding.first_row) {}

  template <class Element>
  __device__ uint2 encode(const Group& x, float scale, std::int64_t row, std::int64_t column) const {
    return encode<Element>(x, repeated(scale), row, column);
  }
  template <class Element>
  __device__ uint2 encode(const Group& x, const Group& scale, std::int64_t row, std::int64_t column) const {
    std::uint32_t draws[4], codes[2] = {};
    block(draws, static_cast<std::uint32_t>(first_row + static_cast<std::uint64_t>(row)),
          static_cast<std::uint32_t>(column / kGroup));
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const std::uint32_t draw = i % 2 == 0 ? draws[i / 2] & 0xFFFFu : draws[i / 2] >> 16;
      codes[i / 4] |= std::uint32_t{stochastic_round_float8<Element>(x.x[i] * scale.x[i], draw)} << (i % 4 * 8);
    }
    return make_uint2(codes[0], codes[1]);
  }

 private:
  // matrix_rounding_block. Each product is the one instruction that it is; nvcc makes two of a 64-bit product of
  // widened factors.
  __device__ void block(std::uint32_t (&c)[4], std::uint32_t row, std::uint32_t group) const {
    const auto product = [](std::uint32_t a, std::uint32_t b) {
      std::uint64_t wide;
      asm("mul.wide.u32 %0, %1, %2;" : "=l"(wide) : "r"(a), "r"(b));
      return wide;
    };
    const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
    const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
    c[0] = group;
    c[1] = row;
    c[2] = low(step);
    c[3] = high(step);
    std::uint32_t key0 = low(key), key1 = high(key);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t a = product(0xD2511F53u, c[0]), b = product(0xCD9E8D57u, c[2]);
      c[0] = high(b) ^ c[1] ^ key0;
      c[1] = low(b);
      c[2] = high(a) ^ c[3] ^ key1;
      c[3] = low(a);
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
  }
};
static_assert(kRoundingsPerBlock == kGroup);

// Calls body with the rounding that an op asks for.
template <class Body>
void with_rounding(const Float8Rounding& rounding, const Body& body) {
  if (rounding.key)
    body(StochasticRounding(rounding));
  else
    body(NearestRounding{});
}

}  // namespace quench::cuda
