#pragma once
// Launch of the decode kernels: splits, CTAs per sequence, workspace. C: element of the cache (decode_params.cuh).

#include <algorithm>

#include "core/cuda/attention/attention_kernels.h"
#include "core/cuda/attention/decode_split.cuh"
#include "core/cuda/attention/decode_unsplit.cuh"
#include "core/cuda/common/launch.h"

namespace quench::cuda {

inline constexpr std::int64_t kMaxQueries = kFewQueries;                // per sequence
inline constexpr std::int64_t kMaxRows = 8;                             // (query, head) rows per CTA
inline constexpr std::int64_t kMinSplitKeys = 64, kMaxSplitKeys = 512;  // multiples of 32
inline constexpr std::int64_t kMaxUnsplitKeys = 1024;
inline constexpr std::int64_t kMaxSplits = 8192;
inline constexpr int kSplitBlocksPerSm = 6;
inline constexpr float kLog2E = 1.44269504088896340736f;

inline std::int64_t ceil_div(std::int64_t n, std::int64_t size) {
  return (n + size - 1) / size;
}

inline Tensor f32_workspace(Device device, std::int64_t splits, std::int64_t rows, std::int64_t columns) {
  return Tensor::empty({splits, rows, columns}, DType::f32, device);
}

// Over a sequence's queries.
inline std::int64_t most_visible(const SequenceRange& s, std::int64_t window) {
  return window == 0 ? s.k_length : std::min(s.k_length, window + s.q_length - 1);
}

inline bool heads_are_wide(const Tensor& t) {
  return t.dtype() == DType::f32
             ? cuda::rows_are_wide<float>(t.raw_data(), t.stride(0), t.size(2)) && t.stride(1) % 4 == 0
             : cuda::rows_are_wide<bfloat16>(t.raw_data(), t.stride(0), t.size(2)) && t.stride(1) % 8 == 0;
}

// `scales`: of codes.
template <class T, class C>
DecodeParams<T, C> decode_params(const AttentionArgs& args, const CacheScales& scales, const NewToken* new_token) {
  return {.q = args.q.data<T>(),
          .k = static_cast<const Stored<C>*>(args.k.raw_data()),
          .v = static_cast<const Stored<C>*>(args.v.raw_data()),
          .out = args.out.data<T>(),
          .q_row = args.q.stride(0),
          .q_head = args.q.stride(1),
          .k_row = args.k.stride(0),
          .k_head = args.k.stride(1),
          .v_row = args.v.stride(0),
          .v_head = args.v.stride(1),
          .heads = static_cast<int>(args.q.size(1)),
          .group = static_cast<int>(args.q.size(1) / args.k.size(1)),
          .dim = static_cast<int>(args.q.size(2)),
          .causal = args.causal,
          .q_is_wide = heads_are_wide(args.q),
          .window = args.window,
          .scale = args.scale * kLog2E,
          .cap = args.soft_cap * kLog2E,
          .sinks = args.sinks.defined() ? args.sinks.data<float>() : nullptr,
          .last_key = args.last_key.defined() ? args.last_key.data<std::int32_t>() : nullptr,
          .rows = args.q.size(0) * args.q.size(1),
          .new_token = new_token != nullptr ? NewTokenOperands<T, C>(*new_token, args) : NewTokenOperands<T, C>(),
          .scales = scales};
}

// Keys per split: enough splits to fill the GPU, none so short that combining dominates.
inline std::int64_t keys_per_split(std::int64_t most_keys, std::int64_t blocks, std::int64_t resident_blocks) {
  if (most_keys <= kMaxUnsplitKeys) return std::max<std::int64_t>(1, most_keys);
  const std::int64_t wanted = std::max<std::int64_t>(1, resident_blocks / blocks);
  return std::clamp(ceil_div(ceil_div(most_keys, wanted), 32) * 32, kMinSplitKeys, kMaxSplitKeys);
}

// Scores, later outputs of warps.
template <class Shape, int kRows>
std::size_t split_shared_bytes(int split_keys) {
  return sizeof(float) * kRows *
         std::max(static_cast<std::size_t>(split_keys), std::size_t{Shape::kWarps} * Shape::kDim);
}

template <class Shape, int kRows>
void launch_split(const OpLaunch& launch, const SequenceTiles& tiles, std::int64_t rows, std::int64_t kv_heads,
                  const typename Shape::Params& params) {
  const dim3 grid(static_cast<unsigned>(tiles.count * params.row_blocks), static_cast<unsigned>(kv_heads),
                  static_cast<unsigned>(params.splits));
  launch.early(rows, decode_split_kernel<Shape, kRows>, grid, Shape::kThreads,
               split_shared_bytes<Shape, kRows>(params.split_keys), tiles, params);
  if (params.splits == 1) return;
  const dim3 combine_grid(static_cast<unsigned>(tiles.first_tile[tiles.count]), static_cast<unsigned>(params.heads));
  // Factors are read as float4, tail included.
  launch.early(rows, combine_splits_kernel<typename Shape::Element, typename Shape::Cached>, combine_grid,
               kCombineThreads, sizeof(float) * 4 * static_cast<std::size_t>(ceil_div(params.splits, 4)), tiles,
               params);
}

// The kernel for one batch of sequences. Short caches: one split of a larger CTA.
template <class Shape, int kRows>
void launch_tiles(const OpLaunch& launch, const SequenceTiles& tiles, const AttentionArgs& args, bool short_cache,
                  const typename Shape::Params& params) {
  using Unsplit = typename Shape::Unsplit;
  const std::int64_t rows = args.q.size(0), kv_heads = args.k.size(1);
  if constexpr (kRows == 1 && !kIsCoded<typename Shape::Cached>) {
    if (short_cache) {
      const dim3 grid(static_cast<unsigned>(tiles.count * params.row_blocks), static_cast<unsigned>(kv_heads));
      return launch.early(rows, decode_unsplit_kernel<Unsplit>, grid, Unsplit::kThreads, 0, tiles, params);
    }
  } else if (short_cache && split_shared_bytes<Unsplit, kRows>(params.split_keys) <=
                                static_cast<std::size_t>(max_shared_bytes(launch.device()))) {
    return launch_split<Unsplit, kRows>(launch, tiles, rows, kv_heads, params);
  }
  launch_split<Shape, kRows>(launch, tiles, rows, kv_heads, params);
}

template <class Shape, int kRows>
void launch_decode(const AttentionArgs& args, typename Shape::Params params) {
  const OpLaunch launch("attention of few queries", {&args.q, &args.k, &args.v, &args.out});
  std::int64_t most_keys = 0, most_rows = 0, sequences = 0;
  for (const SequenceRange& s : args.sequences) {
    most_keys = std::max(most_keys, most_visible(s, params.window));
    most_rows = std::max(most_rows, s.q_length * params.group);
    sequences += s.q_length > 0 ? 1 : 0;
  }
  params.row_blocks = static_cast<int>(ceil_div(most_rows, kRows));
  params.split_keys = static_cast<int>(keys_per_split(most_keys, sequences * params.row_blocks * args.k.size(1),
                                                      std::int64_t{sm_count(launch.device())} * kSplitBlocksPerSm));
  params.splits = static_cast<int>(std::max<std::int64_t>(1, ceil_div(most_keys, params.split_keys)));

  const MemoryScope scope(MemoryCategory::workspace);
  Tensor partial_out, partial_weight;
  if (params.splits > 1) {
    partial_out = f32_workspace(launch.device(), params.splits, params.rows, params.dim);
    partial_weight = f32_workspace(launch.device(), params.splits, params.rows, 2);
    params.partial_out = partial_out.data<float>();
    params.partial_weight = reinterpret_cast<float2*>(partial_weight.data<float>());
  }
  for_sequence_tiles(
      args.sequences, 1, [](const SequenceRange& s) { return s.q_length; },
      [&](const SequenceTiles& tiles) {
        launch_tiles<Shape, kRows>(launch, tiles, args, most_keys <= kMaxUnsplitKeys, params);
      });
}

template <class Shape>
void decode_rows(const AttentionArgs& args, const CacheScales& scales, const NewToken* new_token) {
  const auto params = decode_params<typename Shape::Element, typename Shape::Cached>(args, scales, new_token);
  std::int64_t rows = 0;
  for (const SequenceRange& s : args.sequences) rows = std::max(rows, s.q_length * params.group);
  // Short caches: one CTA per query head is faster.
  const std::int64_t sequences = static_cast<std::int64_t>(args.sequences.size());
  const bool few =
      std::ranges::all_of(args.sequences,
                          [&](const SequenceRange& s) { return most_visible(s, args.window) <= kMaxUnsplitKeys; }) &&
      sequences * rows * args.k.size(1) <= sm_count(args.q.device());
  if (rows <= 1 || few)
    launch_decode<Shape, 1>(args, params);
  else if (rows <= 2)
    launch_decode<Shape, 2>(args, params);
  else if (rows <= 4)
    launch_decode<Shape, 4>(args, params);
  else
    launch_decode<Shape, kMaxRows>(args, params);
}

}  // namespace quench::cuda
