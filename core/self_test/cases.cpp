#include "core/self_test/cases.h"

#include <cmath>

#include "core/ops/elementwise.h"
#include "core/self_test/runs.h"

namespace quench::self_test {
namespace {

using enum KernelFamily;

// Relative errors of one bf16 rounding, of intermediate bf16 roundings, and of f32. Wrong elements, tiles or layouts
// exceed them by far.
constexpr double kRounded = 6e-3, kComposed = 3e-2, kExact = 1e-5;

constexpr Case with_fallback(KernelFamily family, Outputs (*run)(Device), double tolerance) {
  return {.name = {}, .covers = {}, .family = family, .without = {}, .run = run, .tolerance = tolerance};
}

const std::vector<Case>& table() {
  static const std::vector<Case> table = [] {
    std::vector<Case> rows{
        with_fallback(sm90_grouped_gemm, run_grouped_gemm, kRounded),
        with_fallback(sm90_grouped_float8, run_grouped_float8, kRounded),
        with_fallback(sm90_block_float8, run_block_float8, kRounded),
        with_fallback(sm90_low_rank_gemm, run_low_rank_gemm, kComposed),
        with_fallback(sm90_symmetric_gemm, run_symmetric_gemm, kRounded),
        with_fallback(sm90_int8_gemm, run_int8_gemm, kComposed),
        with_fallback(cublaslt_float8, run_float8_gemm, kRounded),
        with_fallback(cudnn_attention, run_attention, kComposed),
        with_fallback(cluster_cross_entropy, run_cross_entropy, kRounded),
    };
    for (Case& row : rows) {
      row.name = info(*row.family).name;
      row.covers = info(*row.family).covers;
    }
    const auto add = [&](std::string_view name, std::string_view covers, Outputs (*run)(Device), double tolerance,
                         KernelFamilySet without = {}) {
      rows.push_back({name, covers, std::nullopt, without, run, tolerance});
    };
    add("gemm", "dense bf16 GEMMs", run_gemm, kRounded);
    add("few_row_gemm", "bf16 GEMMs of a few rows, for generation", run_few_rows, kRounded);
    add("tiled_grouped_gemm", "grouped bf16 GEMMs by mma.sync", run_grouped_gemm, kRounded, sm90_grouped_gemm);
    add("tiled_grouped_float8", "grouped float8 GEMMs with rowwise scales by mma.sync", run_grouped_float8, kRounded,
        sm90_grouped_float8);
    add("tiled_block_float8", "float8 GEMMs with blockwise scales by mma.sync", run_block_float8, kRounded,
        sm90_block_float8);
    add("tiled_float8", "float8 GEMMs with tensorwise and rowwise scales by mma.sync", run_float8_gemm, kRounded,
        cublaslt_float8);
    add("tiled_int8", "int8 GEMMs with rowwise scales by mma.sync", run_int8_gemm, kComposed, sm90_int8_gemm);
    add("separate_low_rank_gemm", "GEMMs with a LoRA update in separate GEMMs", run_low_rank_gemm, kComposed,
        sm90_low_rank_gemm);
    add("full_symmetric_gemm", "symmetric GEMMs as full GEMMs", run_symmetric_gemm, kRounded, sm90_symmetric_gemm);
    add("tiled_attention", "attention and its gradient on tiles", run_attention, kComposed, cudnn_attention);
    add("decode_attention", "attention of few queries over a KV cache", run_decode_attention, kComposed);
    add("two_pass_cross_entropy", "cross-entropy in two passes", run_cross_entropy, kRounded, cluster_cross_entropy);
    add("rms_norm", "RMSNorm and its gradient", run_rms_norm, kComposed);
    add("rope", "RoPE and its inverse", run_rope, kRounded);
    add("swiglu", "SwiGLU and its gradient", run_swiglu, kRounded);
    add("embedding", "token embedding and its gradient", run_embedding, kExact);
    add("adamw", "AdamW in f32", run_adamw, kExact);
    add("quantize", "casts to float8, MXFP8 and NVFP4", run_quantize, kExact);
    return rows;
  }();
  return table;
}

}  // namespace

Tensor values(const Shape& shape, DType dtype, std::uint32_t seed, Device device) {
  const Tensor host = Tensor::empty(shape, DType::f32);
  auto* x = host.data<float>();
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(host.numel()); ++i) {
    std::uint32_t h = i * 2654435761U + seed * 0x9E3779B9U;
    h = (h ^ h >> 15) * 2246822519U;
    h ^= h >> 13;
    x[i] = static_cast<float>(static_cast<int>(h % 15) - 7) / 8;
  }
  if (dtype == DType::f32) return host.to(device);
  const Tensor result = Tensor::empty(shape, dtype);
  cast({host, result});
  return result.to(device);
}

Tensor integers(std::initializer_list<std::int32_t> values, Device device) {
  return Tensor::from_values<std::int32_t>({static_cast<std::int64_t>(values.size())},
                                           std::span(values.begin(), values.size()))
      .to(device);
}

std::span<const Case> cases() {
  return table();
}

Digest digest(const Tensor& output) {
  Tensor x = output;
  if (x.dtype() != DType::f32) {
    x = Tensor::empty(output.shape(), DType::f32);
    cast({output, x});
  }
  const Tensor weights = values(x.shape(), DType::f32, kDigestSeed, {});
  Digest sum;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double value = static_cast<double>(x.data<float>()[i]);
    sum.norm += value * value;
    sum.dot += value * static_cast<double>(weights.data<float>()[i]);
  }
  sum.norm = std::sqrt(sum.norm);
  return sum;
}

}  // namespace quench::self_test
