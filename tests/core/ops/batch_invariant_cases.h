#pragma once
// Cases of batch-invariant mode, for every device.

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "core/device/determinism.h"
#include "core/ops/attention.h"
#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"

namespace quench::testing {

class BatchInvariantMode {
 public:
  BatchInvariantMode() { set_batch_invariant(true); }
  ~BatchInvariantMode() { set_batch_invariant(false); }
  BatchInvariantMode(const BatchInvariantMode&) = delete;
  BatchInvariantMode& operator=(const BatchInvariantMode&) = delete;
};

// Normal values, some thirty times as large.
inline Tensor uneven_values(Shape shape, DType dtype, Device device, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const Tensor values = Tensor::empty(shape, DType::f32), rounded = Tensor::empty(shape, dtype);
  for (std::int64_t i = 0; i < values.numel(); ++i)
    values.data<float>()[i] = normal(random) * (random() % 64 == 0 ? 30.0f : 1.0f);
  cast({values, rounded});
  return rounded.to(device);
}

inline bool same_row_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.clone().to(Device{}), y = b.clone().to(Device{});
  return x.nbytes() == y.nbytes() && std::memcmp(x.raw_data(), y.raw_data(), x.nbytes()) == 0;
}

inline void expect_invariant_gemms(Device device) {
  const BatchInvariantMode mode;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{96, 64}, {48, 2048}, {576, 576}, {60, 9000}}) {
      const Tensor a = uneven_values({130, k}, dtype, device, 1), b = uneven_values({n, k}, dtype, device, 2);
      for (const DType result : {dtype, DType::f32}) {
        const auto product = [&](std::int64_t first, std::int64_t rows) {
          const Tensor c = Tensor::empty({rows, n}, result, device);
          gemm({.a = a.narrow(0, first, rows), .b = b, .c = c, .transpose_b = true});
          return c;
        };
        const Tensor all = product(0, 130);
        for (const std::int64_t rows : {1, 2, 3, 4, 5, 8, 9, 16, 31, 64, 129})
          for (const std::int64_t first : {std::int64_t{0}, 130 - rows})
            EXPECT_TRUE(same_row_bits(product(first, rows), all.narrow(0, first, rows)))
                << to_string(dtype) << " " << n << " x " << k << ", rows " << first << " + " << rows;
      }
    }
}

struct InvariantAttention {
  std::int64_t heads, kv_heads, dim, window = 0;
  float soft_cap = 0;
  bool sinks = false;
};
inline constexpr InvariantAttention kInvariantAttention[] = {{4, 2, 64},
                                                             {8, 1, 128},
                                                             {3, 3, 16},
                                                             {9, 3, 72},
                                                             {4, 2, 64, 20},
                                                             {2, 1, 32, 100},
                                                             {2, 2, 48, 0, 5.0f},
                                                             {4, 1, 64, 0, 0, true},
                                                             {4, 4, 128, 33, 2.0f, true},
                                                             {2, 1, 256},
                                                             {2, 1, 256, 70}};

// A sequence of 300 tokens at once, in pieces, and token by token.
inline void expect_invariant_attention(Device device) {
  const BatchInvariantMode mode;
  constexpr std::int64_t kTokens = 300;
  for (const InvariantAttention& c : kInvariantAttention)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor q = uneven_values({kTokens, c.heads, c.dim}, dtype, device, 3),
                   k = uneven_values({kTokens, c.kv_heads, c.dim}, dtype, device, 4),
                   v = uneven_values({kTokens, c.kv_heads, c.dim}, dtype, device, 5),
                   sinks = c.sinks ? uneven_values({c.heads}, DType::f32, device, 6) : Tensor();
      const auto attend = [&](std::int64_t first, std::int64_t rows, bool all_keys) {
        const Tensor out = Tensor::empty({rows, c.heads, c.dim}, dtype, device);
        const std::int64_t keys = first + rows;
        const SequenceRange sequences[] = {{0, rows, 0, keys}};
        attention({.q = q.narrow(0, first, rows),
                   .k = all_keys ? k : k.narrow(0, 0, keys),
                   .v = all_keys ? v : v.narrow(0, 0, keys),
                   .out = out,
                   .lse = {},
                   .sequences = sequences,
                   .window = c.window,
                   .scale = 0.1f,
                   .soft_cap = c.soft_cap,
                   .sinks = sinks});
        return out;
      };
      const Tensor whole = attend(0, kTokens, true);
      for (const std::int64_t rows : {1, 2, 7, 64, 65})
        for (const std::int64_t first : {0, 1, 62, 64, 127, 200, 235})
          EXPECT_TRUE(same_row_bits(attend(first, rows, rows == 7), whole.narrow(0, first, rows)))
              << to_string(dtype) << ", heads " << c.heads << " / " << c.kv_heads << " of " << c.dim << ", window "
              << c.window << ", cap " << c.soft_cap << ", rows " << first << " + " << rows;
    }
}

}  // namespace quench::testing
