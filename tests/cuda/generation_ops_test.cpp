// The kernels of generation that stand for several others have the bits of those one after the other.

#include <array>
#include <cmath>

#include "core/device/read_only_weights.h"
#include "core/memory/device_graph.h"
#include "core/ops/attention.h"
#include "core/ops/elementwise.h"
#include "core/ops/gated_linear.h"
#include "core/ops/gemm.h"
#include "core/ops/kv_cache/cached_attention.h"
#include "core/ops/norm.h"
#include "core/ops/normed_linear.h"
#include "core/ops/rope.h"
#include "core/ops/swiglu.h"
#include "tests/core/ops/rope_tables.h"
#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

Tensor position_of(std::int64_t key) {
  const std::array<std::int32_t, 1> values{static_cast<std::int32_t>(key)};
  return Tensor::from_values<std::int32_t>({1}, values).to(kGpu);
}

TEST(CudaGatedLinear, HasTheBitsOfAProductAndItsUnit) {
  Generator random(5);
  for (const GatedActivation activation : kGatedActivations)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const std::int64_t rows : {1, 3, 40})
        for (const auto& [columns, depth] :
             {std::pair<std::int64_t, std::int64_t>{8, 64}, {37, 2048}, {5, 4096}, {70, 8192}})
          for (const bool with_bias : {false, true}) {
            const Tensor x = random.normal({rows, depth}, dtype).to(kGpu),
                         weight = random.normal({2 * columns, depth}, dtype, 0.05).to(kGpu),
                         bias = with_bias ? random.normal({2 * columns}, dtype).to(kGpu) : Tensor(),
                         y = Tensor::empty({rows, columns}, dtype, kGpu);
            const Tensor gate_up = Tensor::empty({rows, 2 * columns}, dtype, kGpu), expected = Tensor::empty_like(y);
            gemm({.a = x, .b = weight, .c = gate_up, .transpose_b = true, .bias = bias});
            swiglu({.gate_up = gate_up, .out = expected, .activation = activation});
            gated_linear({.x = x, .weight = weight, .y = y, .bias = bias, .activation = activation});
            EXPECT_TRUE(same_bits(on_cpu(y), on_cpu(expected)))
                << static_cast<int>(activation) << " " << to_string(dtype) << " " << rows << " x " << columns << " of "
                << depth;
          }
}

// The CPU has GEMM and unit one after the other.
TEST(CudaGatedLinear, IsCloseToTheCpu) {
  Generator random(14);
  for (const GatedActivation activation : kGatedActivations)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const std::int64_t depth : {64, 2048}) {
        constexpr std::int64_t kColumns = 37;
        const Tensor x = random.normal({1, depth}, dtype), weight = random.normal({2 * kColumns, depth}, dtype, 0.05),
                     bias = random.normal({2 * kColumns}, dtype), expected = Tensor::empty({1, kColumns}, dtype),
                     y = Tensor::empty({1, kColumns}, dtype, kGpu);
        gated_linear({.x = x, .weight = weight, .y = expected, .bias = bias, .activation = activation});
        gated_linear(
            {.x = x.to(kGpu), .weight = weight.to(kGpu), .y = y, .bias = bias.to(kGpu), .activation = activation});
        EXPECT_TRUE(close(on_cpu(y), values(expected), 16 * rounding(dtype),
                          2 * rounding(dtype) * std::sqrt(static_cast<double>(depth))))
            << static_cast<int>(activation) << " " << to_string(dtype) << " of " << depth;
      }
}

TEST(CudaGatedLinear, HasTheBitsOfAPackedProductAndItsUnit) {
  Generator random(6);
  for (const GatedActivation activation : kGatedActivations)
    for (const DType codes_dtype : {DType::i4, DType::i8, DType::f8_e4m3, DType::f4_e2m1})
      for (const auto& [rows, columns, group] :
           {std::array<std::int64_t, 3>{38, 256, 32}, {6, 4096, 128}, {10, 512, 512}, {4100, 128, 64}, {4, 70, 6}})
        for (const bool offsets : {false, true})
          for (const DType dtype : {DType::f32, DType::bf16})
            for (const std::int64_t tokens : {1, 2}) {
              const Tensor codes = Tensor::empty({rows, columns}, codes_dtype);
              auto* bytes = static_cast<std::uint8_t*>(codes.raw_data());
              for (std::size_t i = 0; i < codes.nbytes(); ++i) {
                bytes[i] = static_cast<std::uint8_t>(random.below(256));
                if (codes_dtype == DType::f8_e4m3 && (bytes[i] & 0x7F) == 0x7F) bytes[i] = 0;
              }
              const Shape groups{rows, (columns + group - 1) / group};
              const PackedMatrix weight = PackedMatrix(group, codes, random.normal(groups, DType::f32, 0.05),
                                                       offsets ? random.normal(groups, DType::f32, 0.05) : Tensor())
                                              .to(kGpu);
              const Tensor x = random.normal({tokens, columns}, dtype).to(kGpu),
                           bias = random.normal({rows}, dtype).to(kGpu),
                           y = Tensor::empty({tokens, rows / 2}, dtype, kGpu);
              const Tensor gate_up = Tensor::empty({tokens, rows}, dtype, kGpu), expected = Tensor::empty_like(y);
              packed_linear({.x = x, .weight = weight, .y = gate_up, .bias = bias});
              swiglu({.gate_up = gate_up, .out = expected, .activation = activation});
              gated_packed_linear({.x = x, .weight = weight, .y = y, .bias = bias, .activation = activation});
              EXPECT_TRUE(same_bits(on_cpu(y), on_cpu(expected)))
                  << static_cast<int>(activation) << " " << to_string(codes_dtype) << " " << rows << " x " << columns
                  << " in groups of " << group;
            }
}

// Widths of every way in which the norm's kernel shares a row out, and one that the product does not take. In f32 there
// is no kernel of its own.
TEST(CudaNormedLinear, HasTheBitsOfANormAndAProduct) {
  constexpr DType dtype = DType::bf16;
  Generator random(11);
  for (const std::int64_t width : {64, 256, 512, 1024, 1536, 2048, 4096, 8192, 16384})
    for (const std::optional<GatedActivation> gated :
         {std::optional<GatedActivation>(), std::optional(GatedActivation::silu),
          std::optional(GatedActivation::gelu_tanh)})
      for (const auto& [codes_dtype, group] : {std::pair<DType, std::int64_t>{DType::bf16, width},
                                               {DType::i4, 64},
                                               {DType::f8_e4m3, 64},
                                               {DType::f8_e4m3, width},
                                               {DType::i8, width}}) {
        constexpr std::int64_t kRows = 38;
        NormedLinearArgs args;
        args.x = random.normal({1, width}, dtype).to(kGpu);
        args.norm = {random.normal({1, width}, dtype, 3.0).to(kGpu), random.normal({width}, dtype).to(kGpu), 1e-5f,
                     Tensor::empty({1, width}, dtype, kGpu)};
        args.y = Tensor::empty({1, gated ? kRows / 2 : kRows}, dtype, kGpu);
        args.bias = random.normal({kRows}, dtype).to(kGpu);
        args.gated = gated;
        if (codes_dtype == DType::bf16) {
          args.values = random.normal({kRows, width}, dtype, 0.05).to(kGpu);
        } else {
          const Tensor codes = Tensor::empty({kRows, width}, codes_dtype);
          auto* bytes = static_cast<std::uint8_t*>(codes.raw_data());
          for (std::size_t i = 0; i < codes.nbytes(); ++i) {
            bytes[i] = static_cast<std::uint8_t>(random.below(256));
            if (codes_dtype == DType::f8_e4m3 && (bytes[i] & 0x7F) == 0x7F) bytes[i] = 0;
          }
          const double scale = codes_dtype == DType::i4 ? 0.01 : 0.0003;
          args.packed = PackedMatrix(group, codes, random.normal({kRows, width / group}, DType::f32, scale)).to(kGpu);
        }
        normed_linear(args);
        NormedLinearArgs apart = args;
        apart.norm.sum = Tensor::empty_like(args.norm.sum);
        apart.y = Tensor::empty_like(args.y);
        normed_linear_apart(apart);
        EXPECT_TRUE(same_bits(on_cpu(args.norm.sum), on_cpu(apart.norm.sum))) << width;
        EXPECT_TRUE(same_bits(on_cpu(args.y), on_cpu(apart.y)))
            << to_string(dtype) << " " << width << " " << to_string(codes_dtype) << " in groups of " << group
            << (gated ? " gated" : "");
        // The CPU has the operations one after the other.
        NormedLinearArgs oracle = args;
        for (Tensor* t : {&oracle.x, &oracle.norm.residual, &oracle.norm.weight, &oracle.values, &oracle.bias})
          if (t->defined()) *t = on_cpu(*t);
        if (args.packed.defined()) oracle.packed = args.packed.to(Device{});
        oracle.norm.sum = Tensor::empty({1, width}, dtype);
        oracle.y = Tensor::empty(args.y.shape(), dtype);
        normed_linear(oracle);
        EXPECT_TRUE(close(on_cpu(args.y), values(oracle.y), 16 * rounding(dtype),
                          2 * rounding(dtype) * std::sqrt(static_cast<double>(width))))
            << width;
      }
}

// More tiles than the device has warps: a warp takes several, also where the last ones are fewer.
TEST(CudaNormedLinear, WarpsOfManyRowsTakeTilesInTurn) {
  Generator random(12);
  for (const std::int64_t columns : {128, 192, 512})
    for (const std::int64_t rows : {40000, 70003}) {
      const Tensor weight = random.normal({rows, columns}, DType::bf16, 0.05),
                   x = random.normal({3, columns}, DType::bf16);
      const Tensor y = Tensor::empty({3, rows}, DType::f32, kGpu), expected = Tensor::empty({3, rows}, DType::f32);
      gemm({.a = x.to(kGpu), .b = weight.to(kGpu), .c = y, .transpose_b = true});
      gemm({.a = x, .b = weight, .c = expected, .transpose_b = true});
      EXPECT_TRUE(close(on_cpu(y), values(expected), 1e-5, 1e-5)) << rows << " x " << columns;
    }
}

// Kernels that read their weights before the one before them is done see what it wrote all the same.
TEST(CudaGatedLinear, HasTheSameBitsBesideAPromiseOfConstantWeights) {
  constexpr std::int64_t kWidth = 512, kInner = 2048, kTurns = 40;
  Generator random(9);
  const auto packed = [&](DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t group) {
    const Tensor codes = Tensor::empty({rows, columns}, dtype);
    auto* bytes = static_cast<std::uint8_t*>(codes.raw_data());
    for (std::size_t i = 0; i < codes.nbytes(); ++i) bytes[i] = static_cast<std::uint8_t>(random.below(256));
    return PackedMatrix(group, codes, random.normal({rows, columns / group}, DType::f32, 0.01)).to(kGpu);
  };
  const PackedMatrix gate_up = packed(DType::i4, 2 * kInner, kWidth, 128),
                     down = packed(DType::i8, kWidth, kInner, kInner);
  const Tensor values = random.normal({kWidth, kWidth}, DType::bf16, 0.05).to(kGpu);
  const Tensor input = random.normal({1, kWidth}, DType::bf16).to(kGpu),
               gain = random.normal({kWidth}, DType::bf16).to(kGpu), y = Tensor::empty_like(input),
               z = Tensor::empty_like(input), inner = Tensor::empty({1, kInner}, DType::bf16, kGpu),
               rstd = Tensor::empty({1}, DType::f32, kGpu);
  Tensor x = input.clone();
  const auto chain = [&] {
    for (std::int64_t turn = 0; turn < kTurns; ++turn) {
      gated_packed_linear({.x = x, .weight = gate_up, .y = inner, .bias = {}});
      packed_linear({.x = inner, .weight = down, .y = y, .bias = {}});
      gemm({.a = y, .b = values, .c = z, .transpose_b = true});
      rms_norm({.x = z, .weight = gain, .y = x, .rstd = rstd});
    }
  };
  chain();
  const Tensor expected = on_cpu(x);
  EXPECT_GT(std::abs(get_element(expected, 0)), 0.0);
  const auto work = DeviceGraph::capture(kGpu, [&] {
    const ReadOnlyWeightsScope constant({values.raw_data()});
    chain();
  });
  EXPECT_FALSE(ReadOnlyWeightsScope::of_packed() || ReadOnlyWeightsScope::of_values(values.raw_data()));
  for (int trial = 0; trial < 5; ++trial) {
    x.copy_from(input);
    work->launch();
    EXPECT_TRUE(same_bits(on_cpu(x), expected));
  }
}

TEST(CudaCachedAttention, HasTheBitsOfRotationCopyAndAttention) {
  constexpr std::int64_t kHeads = 8, kCapacity = 3000,
                         kFirst = 7;  // the sequence begins after other rows of the cache
  Generator random(7);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [dim, kv_heads] :
         {std::pair<std::int64_t, std::int64_t>{64, 2}, {128, 8}, {80, 4}, {256, 1}, {40, 2}})
      for (const std::int64_t window : {0, 90})
        for (const std::int64_t keys : {1, 70, 1024, 2900})
          for (const bool rotates : {true, false}) {
            const std::int64_t width = (kHeads + 2 * kv_heads) * dim;
            const Tables tables(kCapacity, dim / 2);
            const Tensor cos = tables.cos.to(kGpu), sin = tables.sin.to(kGpu);
            const Tensor cache = random.normal({kCapacity, 2 * kv_heads * dim}, dtype).to(kGpu), filled = cache.clone();
            const Tensor qkv = random.normal({1, width}, dtype).to(kGpu), turned = qkv.clone();
            const Tensor position = position_of(kFirst + keys - 1);
            const Tensor out = Tensor::empty({1, kHeads * dim}, dtype, kGpu), expected = Tensor::empty_like(out);
            const auto heads = [dim = dim](const Tensor& matrix, std::int64_t first, std::int64_t count) {
              return matrix.strided({matrix.size(0), count, dim}, {matrix.size(1), dim, 1}, first * dim);
            };
            const SequenceRange range{0, 1, kFirst, keys};
            if (rotates)
              rope({.x = heads(turned, 0, kHeads + kv_heads), .cos = cos, .sin = sin, .positions = position});
            copy_rows({turned.narrow(1, kHeads * dim, 2 * kv_heads * dim), filled, position});
            attention({.q = heads(turned, 0, kHeads),
                       .k = heads(filled, 0, kv_heads),
                       .v = heads(filled, kv_heads, kv_heads),
                       .out = expected.view({1, kHeads, dim}),
                       .lse = {},
                       .sequences = std::span(&range, 1),
                       .window = window,
                       .scale = 0.125f});
            cached_attention({.qkv = qkv,
                              .cos = rotates ? cos : Tensor(),
                              .sin = rotates ? sin : Tensor(),
                              .positions = position,
                              .cache = cache,
                              .out = out,
                              .heads = kHeads,
                              .kv_heads = kv_heads,
                              .sequences = std::span(&range, 1),
                              .window = window,
                              .scale = 0.125f});
            EXPECT_TRUE(same_bits(on_cpu(out), on_cpu(expected)))
                << to_string(dtype) << " " << dim << ", " << kv_heads << " kv heads, " << keys << " keys";
            EXPECT_TRUE(same_bits(on_cpu(cache), on_cpu(filled)));
          }
}

// The number of keys is known to the device alone, below a bound.
TEST(CudaCachedAttention, TheLengthMayBeKnownToTheDeviceAlone) {
  constexpr std::int64_t kHeads = 4, kKvHeads = 2, kDim = 64, kCapacity = 2000, kWidth = (kHeads + 2 * kKvHeads) * kDim;
  Generator random(8);
  const Tables tables(kCapacity, kDim / 2);
  const Tensor cos = tables.cos.to(kGpu), sin = tables.sin.to(kGpu);
  for (const std::int64_t bound : {800, 2000})
    for (const std::int64_t keys : {1, 2, 500, 800}) {
      const Tensor cache = random.normal({kCapacity, 2 * kKvHeads * kDim}, DType::bf16).to(kGpu), other = cache.clone();
      const Tensor qkv = random.normal({1, kWidth}, DType::bf16).to(kGpu);
      const Tensor position = position_of(keys - 1);
      const auto attend = [&](const Tensor& rows, std::int64_t length, bool on_device) {
        const Tensor out = Tensor::empty({1, kHeads * kDim}, DType::bf16, kGpu);
        const SequenceRange range{0, 1, 0, length};
        cached_attention({.qkv = qkv,
                          .cos = cos,
                          .sin = sin,
                          .positions = position,
                          .cache = rows,
                          .out = out,
                          .heads = kHeads,
                          .kv_heads = kKvHeads,
                          .sequences = std::span(&range, 1),
                          .scale = 0.125f,
                          .length_on_device = on_device});
        return on_cpu(out);
      };
      const Tensor expected = attend(other, keys, false);
      EXPECT_TRUE(close(attend(cache, bound, true), values(expected), 2 * rounding(DType::bf16), 1e-2)) << keys;
      EXPECT_TRUE(same_bits(on_cpu(cache), on_cpu(other)));
    }
}

}  // namespace
}  // namespace quench::testing
