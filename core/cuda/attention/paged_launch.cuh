#pragma once
// Parameters of the paged decode kernels, from the op's arguments.

#include <bit>

#include "core/cuda/attention/decode_launch.cuh"
#include "core/cuda/attention/paged_params.cuh"
#include "core/device/read_only_weights.h"
#include "core/ops/kv_cache/cache_codes.h"
#include "core/ops/kv_cache/paged_attention.h"

namespace quench::cuda {

inline Tensor paged_heads(const Tensor& matrix, std::int64_t begin, std::int64_t heads, std::int64_t dim) {
  return matrix.strided({matrix.size(0), heads, dim}, {matrix.size(1), dim, 1}, begin);
}

template <class T, class C>
PagedParams<T, C> paged_params(const PagedAttentionArgs& args) {
  const std::int64_t dim = args.out.size(1) / args.heads, width = args.kv_heads * dim, sequences = args.qkv.size(0);
  const AttentionArgs call{.q = paged_heads(args.qkv, 0, args.heads, dim),
                           .k = paged_heads(args.cache, 0, args.kv_heads, dim),
                           .v = paged_heads(args.cache, width, args.kv_heads, dim),
                           .out = args.out.view({sequences, args.heads, dim}),
                           .lse = {},
                           .sequences = {},
                           .window = args.window,
                           .scale = args.scale,
                           .soft_cap = args.soft_cap,
                           .sinks = args.sinks};
  const NewToken token{.key = paged_heads(args.qkv, args.heads * dim, args.kv_heads, dim),
                       .value = paged_heads(args.qkv, args.heads * dim + width, args.kv_heads, dim),
                       .cos = args.cos,
                       .sin = args.sin,
                       .position = args.positions,
                       .hadamard = args.hadamard};
  CacheScales scales;
  if (args.scales.defined())
    scales = {args.scales.data<float>(), scale_stride(args.scales), static_cast<int>(args.kv_heads)};
  return {decode_params<T, C>(call, scales, &token),
          args.positions.data<std::int32_t>(),
          args.pages.data<std::int32_t>(),
          args.pages.stride(0),
          args.chunk,
          std::countr_zero(static_cast<std::uint64_t>(args.page)),
          ReadOnlyWeightsScope::of_values(args.pages.raw_data())};
}

}  // namespace quench::cuda
