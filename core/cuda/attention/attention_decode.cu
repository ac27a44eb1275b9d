// Split-KV decode attention (Flash-Decoding), memory bound. Query heads of a KV head share one read of the cache. Long
// caches are split into parts to occupy every SM, a part's scores in shared memory (no running maximum), combined in
// order by a second kernel. Short caches: one part of a larger CTA.

#include <algorithm>
#include <cmath>

#include "core/cuda/attention/attention_kernels.h"
#include "core/cuda/attention/attention_sequences.h"
#include "core/cuda/attention/attention_token.cuh"
#include "core/cuda/attention/decode_operands.cuh"
#include "core/cuda/common/launch.h"
#include "core/cuda/common/pdl.cuh"
#include "core/cuda/common/reduce.cuh"
#include "core/cuda/common/vector.cuh"

namespace quench::cuda {
namespace {

constexpr int kMergeThreads = 128;
constexpr std::int64_t kMaxQueries = 8;                // per sequence
constexpr std::int64_t kMaxRows = 8;                   // (query, head) rows per CTA
constexpr std::int64_t kMinPart = 64, kMaxPart = 512;  // keys
constexpr std::int64_t kMaxWhole = 1024;               // keys, without a split
constexpr std::int64_t kMaxParts = 8192;
constexpr int kBlocksPerMultiprocessor = 6;
constexpr float kLog2E = 1.44269504088896340736f;

// Grid: (sequence, row block), KV head, part. Reads 2 * D elements per key.
template <class Shape, int kRows>
__global__ __launch_bounds__(Shape::kThreads) void decode_kernel(const __grid_constant__ SequenceTiles tiles,
                                                                 const DecodeOperands<typename Shape::Element> x) {
  using T = typename Shape::Element;
  extern __shared__ float4 shared[];
  float* scores = reinterpret_cast<float*>(shared);  // [part_size][kRows]; later [warps][kRows][kDim]
  __shared__ float weight_sums[kRows], weight_maxima[kRows];

  pdl_sync();
  SequenceRange s = tiles.sequences[blockIdx.x / static_cast<unsigned>(x.row_blocks)];
  if (x.last_key != nullptr) s.k_length = max(std::int64_t{0}, min(s.k_length, std::int64_t{*x.last_key} + 1));
  const int row_block = static_cast<int>(blockIdx.x) % x.row_blocks, kv_head = static_cast<int>(blockIdx.y);
  const int part = static_cast<int>(blockIdx.z), thread = static_cast<int>(threadIdx.x);
  const int lane = thread % Shape::kLanes, group = thread / Shape::kLanes;
  const int first_row = row_block * kRows;  // query * group + head in group
  const int sequence_rows = static_cast<int>(s.q_length) * x.group;
  if (first_row >= sequence_rows) return;

  // First key visible to the first row.
  const std::int64_t begin = std::int64_t{part} * x.part_size + first_visible_key(s, x.window, first_row / x.group);
  // Causal: the last row sees most keys.
  const int last_query = min(first_row + kRows, sequence_rows) - 1;
  const std::int64_t end = min(begin + x.part_size, visible_keys(s, x.causal, last_query / x.group));
  const int keys = static_cast<int>(max(std::int64_t{0}, end - begin));

  const auto row_index = [&](int r) {  // query * heads + head
    const int row = first_row + r;
    return (s.q_begin + row / x.group) * x.heads + kv_head * x.group + row % x.group;
  };

  const T* k = x.k + (s.k_begin + begin) * x.k_row + kv_head * x.k_head;
  const T* v = x.v + (s.k_begin + begin) * x.v_row + kv_head * x.v_head;
  constexpr int kUnroll = Shape::kUnroll, kTurn = Shape::kGroups * kUnroll;
  LaneRow<Shape> rows[kUnroll];
  const auto load_rows = [&](const T* first, std::int64_t stride, int base) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (base + u * Shape::kGroups >= keys) break;
      rows[u].load(first + std::int64_t{min(base + u * Shape::kGroups + group, keys - 1)} * stride, lane, x.dim);
    }
  };
  load_rows(k, x.k_row, 0);

  float q[kRows][Shape::kElements];
  const auto source_of = [&](int r) {
    const int row = min(first_row + r, sequence_rows - 1);
    return x.q + (s.q_begin + row / x.group) * x.q_row + (kv_head * x.group + row % x.group) * x.q_head;
  };
  if (x.fresh.key == nullptr) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      LaneRow<Shape> elements;
      if (x.q_is_wide)
        elements.load(source_of(r), lane, x.dim);
      else
        elements.load_each(source_of(r), lane, x.dim);
#pragma unroll
      for (int e = 0; e < Shape::kElements; ++e) q[r][e] = elements[e] * x.scale;
    }
  } else {
    // Equal values from every CTA of the KV head.
    const bool stores = s.k_length > begin && s.k_length <= begin + x.part_size;
    if (stores) x.fresh.store(kv_head, x.dim);
#pragma unroll
    for (int p = 0; p < Shape::kPieces; ++p) {
      const int d = (p * Shape::kLanes + lane) * Shape::kWidth;
      const auto angles = x.fresh.angles(d < x.dim ? d : 0, x.dim);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        Vector<T> elements{};
        if (d < x.dim) elements = x.fresh.rotated(source_of(r), angles, d, x.dim);
#pragma unroll
        for (int j = 0; j < Shape::kWidth; ++j) q[r][p * Shape::kWidth + j] = to_float(elements[j]) * x.scale;
      }
    }
    if (stores) {  // the new key
      __syncthreads();
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        if (u * Shape::kGroups + group >= keys - 1 && u * Shape::kGroups < keys)
          rows[u].load(k + std::int64_t{keys - 1} * x.k_row, lane, x.dim);
    }
  }

  // Uniform trip count over the warp, for the shuffles.
  for (int base = 0; base < keys; base += kTurn) {
    if (base > 0) load_rows(k, x.k_row, base);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (base + u * Shape::kGroups >= keys) break;
      const int key = base + u * Shape::kGroups + group;
      float products[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        products[r] = 0;
#pragma unroll
        for (int e = 0; e < Shape::kElements; ++e) products[r] = fmaf(q[r][e], rows[u][e], products[r]);
        products[r] = capped_score(lane_reduce<Shape::kLanes>(products[r], Sum()), x.cap);
      }
      if (lane == 0 && key < keys)
#pragma unroll
        for (int r = 0; r < kRows; ++r) scores[key * kRows + r] = products[r];
    }
  }
  if (keys > 0) load_rows(v, x.v_row, 0);  // in flight during the softmax
  __syncthreads();

  // Softmax, one warp per row.
  for (int r = thread / 32; r < kRows; r += Shape::kWarps) {
    const int row = min(first_row + r, sequence_rows - 1);
    const int visible = static_cast<int>(
        max(std::int64_t{0}, min(std::int64_t{keys}, visible_keys(s, x.causal, row / x.group) - begin)));
    const int hidden = static_cast<int>(
        max(std::int64_t{0}, min(std::int64_t{keys}, first_visible_key(s, x.window, row / x.group) - begin)));
    float best = -INFINITY, sum = 0;
    for (int i = hidden + thread % 32; i < visible; i += 32) best = fmaxf(best, scores[i * kRows + r]);
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) best = fmaxf(best, __shfl_xor_sync(0xFFFFFFFFu, best, offset));
    for (int i = thread % 32; i < keys; i += 32) {
      const float weight = i >= hidden && i < visible ? exp2f(scores[i * kRows + r] - best) : 0.0f;
      scores[i * kRows + r] = weight;
      sum += weight;
    }
    sum = warp_reduce(sum, Sum());
    if (thread % 32 == 0) {
      weight_maxima[r] = best;
      weight_sums[r] = sum;
    }
  }
  __syncthreads();

  float sums[kRows][Shape::kElements] = {};
  for (int base = 0; base < keys; base += kTurn) {
    if (base > 0) load_rows(v, x.v_row, base);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int key = base + u * Shape::kGroups + group;
      if (key >= keys) break;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float weight = scores[key * kRows + r];
#pragma unroll
        for (int e = 0; e < Shape::kElements; ++e) sums[r][e] = fmaf(weight, rows[u][e], sums[r][e]);
      }
    }
  }
  __syncthreads();  // memory reused for partial outputs

  // Over lane groups, then warps.
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int e = 0; e < Shape::kElements; ++e) {
#pragma unroll
      for (int offset = 16; offset >= Shape::kLanes; offset /= 2)
        sums[r][e] += __shfl_xor_sync(0xFFFFFFFFu, sums[r][e], offset);
      const int d = (e / Shape::kWidth * Shape::kLanes + lane) * Shape::kWidth + e % Shape::kWidth;
      if (thread % 32 < Shape::kLanes) scores[(thread / 32 * kRows + r) * Shape::kDim + d] = sums[r][e];
    }
  __syncthreads();
  for (int i = thread; i < kRows * Shape::kDim; i += Shape::kThreads) {
    const int r = i / Shape::kDim, d = i % Shape::kDim;
    if (d >= x.dim || first_row + r >= sequence_rows) continue;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < Shape::kWarps; ++w) sum += scores[(w * kRows + r) * Shape::kDim + d];
    const std::int64_t row = row_index(r);
    if (x.parts == 1)  // no visible key: 0
      x.out[row * x.dim + d] = from_float<T>(normalized(sum, weight_maxima[r], weight_sums[r], x.sinks, row % x.heads));
    else
      x.partial_out[(part * x.rows + row) * x.dim + d] = sum;
  }
  if (x.parts > 1 && thread < kRows && first_row + thread < sequence_rows)
    x.partial_weight[part * x.rows + row_index(thread)] = make_float2(weight_maxima[thread], weight_sums[thread]);
}

// One CTA per row. Reads parts * (4 D + 8) bytes, mostly from L2.
template <class T>
__global__ __launch_bounds__(kMergeThreads) void merge_kernel(const __grid_constant__ SequenceTiles tiles,
                                                              const DecodeOperands<T> x) {
  extern __shared__ float4 shared[];
  float* factors = reinterpret_cast<float*>(shared);  // [parts]
  __shared__ float scratch[33];
  pdl_sync();
  const auto [s, query] = find_tile(tiles, static_cast<int>(blockIdx.x));
  const std::int64_t row = (s.q_begin + query) * x.heads + blockIdx.y;
  const int thread = static_cast<int>(threadIdx.x);
  float best = -INFINITY, sum = 0;
  for (int p = thread; p < x.parts; p += kMergeThreads) best = fmaxf(best, x.partial_weight[p * x.rows + row].x);
  best = block_reduce<kMergeThreads>(best, -INFINITY, scratch, Max());
  for (int p = thread; p < x.parts; p += kMergeThreads) {
    // -inf: no visible key, or only NaN, which the sum propagates.
    const float2 weight = x.partial_weight[p * x.rows + row];
    factors[p] = weight.x == -INFINITY ? 0.0f : exp2f(weight.x - best);
    sum = fmaf(weight.y, factors[p], sum);
  }
  sum = block_reduce<kMergeThreads>(sum, 0.0f, scratch, Sum());
  for (int d = thread; d < x.dim; d += kMergeThreads) {
    float value = 0;
#pragma unroll 16
    for (int p = 0; p < x.parts; ++p) value = fmaf(x.partial_out[(p * x.rows + row) * x.dim + d], factors[p], value);
    x.out[row * x.dim + d] = from_float<T>(normalized(value, best, sum, x.sinks, blockIdx.y));
  }
}

Tensor f32_workspace(Device device, std::int64_t parts, std::int64_t rows, std::int64_t columns) {
  return Tensor::empty({parts, rows, columns}, DType::f32, device);
}

// Over a sequence's queries.
std::int64_t most_visible(const SequenceRange& s, std::int64_t window) {
  return window == 0 ? s.k_length : std::min(s.k_length, window + s.q_length - 1);
}

template <class Shape, int kRows>
void launch_decode(const AttentionArgs& args, DecodeOperands<typename Shape::Element> x) {
  using T = typename Shape::Element;
  const OpLaunch launch("attention of few queries", {&args.q, &args.k, &args.v, &args.out});
  std::int64_t most_keys = 0, most_rows = 0, sequences = 0;
  for (const SequenceRange& s : args.sequences) {
    most_keys = std::max(most_keys, most_visible(s, x.window));
    most_rows = std::max(most_rows, s.q_length * x.group);
    sequences += s.q_length > 0 ? 1 : 0;
  }
  const std::int64_t kv_heads = args.k.size(1);
  x.row_blocks = static_cast<int>((most_rows + kRows - 1) / kRows);
  const std::int64_t blocks = sequences * x.row_blocks * kv_heads;
  const std::int64_t wanted = std::int64_t{sm_count(launch.device())} * kBlocksPerMultiprocessor;
  const auto pieces = [](std::int64_t n, std::int64_t size) { return (n + size - 1) / size; };
  const bool whole = most_keys <= kMaxWhole;
  // Enough parts to fill the GPU, none so short that the combine dominates.
  const std::int64_t filling = std::max<std::int64_t>(1, wanted / blocks);
  const std::int64_t size = whole ? std::max<std::int64_t>(1, most_keys)
                                  : std::clamp(pieces(pieces(most_keys, filling), 32) * 32, kMinPart, kMaxPart);
  x.part_size = static_cast<int>(size);
  x.parts = static_cast<int>(std::max<std::int64_t>(1, pieces(most_keys, size)));

  const MemoryScope scope(MemoryCategory::workspace);
  Tensor partial_out, partial_weight;
  if (x.parts > 1) {
    partial_out = f32_workspace(launch.device(), x.parts, x.rows, x.dim);
    partial_weight = f32_workspace(launch.device(), x.parts, x.rows, 2);
    x.partial_out = partial_out.data<float>();
    x.partial_weight = reinterpret_cast<float2*>(partial_weight.data<float>());
  }
  const auto shared_bytes = [&]<class Block>() {
    return sizeof(float) * static_cast<std::size_t>(kRows) *
           std::max<std::size_t>(static_cast<std::size_t>(size), static_cast<std::size_t>(Block::kWarps) * Block::kDim);
  };
  const auto run = [&]<class Block>(const SequenceTiles& tiles) {
    const std::size_t shared = shared_bytes.template operator()<Block>();
    const dim3 grid(static_cast<unsigned>(tiles.count * x.row_blocks), static_cast<unsigned>(kv_heads),
                    static_cast<unsigned>(x.parts));
    launch.early(args.q.size(0), decode_kernel<Block, kRows>, grid, Block::kThreads, shared, tiles, x);
  };
  for_sequence_tiles(
      args.sequences, 1, [](const SequenceRange& s) { return s.q_length; },
      [&](const SequenceTiles& tiles) {
        if constexpr (kRows == 1) {
          if (whole) {
            const dim3 grid(static_cast<unsigned>(tiles.count * x.row_blocks), static_cast<unsigned>(kv_heads));
            return launch.early(args.q.size(0), token_kernel<typename Shape::Whole>, grid, Shape::Whole::kThreads, 0,
                                tiles, x);
          }
        } else if (whole && shared_bytes.template operator()<typename Shape::Whole>() <=
                                static_cast<std::size_t>(max_shared_bytes(launch.device()))) {
          return run.template operator()<typename Shape::Whole>(tiles);
        }
        run.template operator()<Shape>(tiles);
        if (x.parts == 1) return;
        const dim3 merge_grid(static_cast<unsigned>(tiles.first_tile[tiles.count]), static_cast<unsigned>(x.heads));
        // Read as float4, tail included.
        const auto factors = static_cast<std::size_t>(pieces(x.parts, 4) * 4);
        launch.early(args.q.size(0), merge_kernel<T>, merge_grid, kMergeThreads, sizeof(float) * factors, tiles, x);
      });
}

bool rows_are_wide(const Tensor& t) {
  return t.dtype() == DType::f32
             ? cuda::rows_are_wide<float>(t.raw_data(), t.stride(0), t.size(2)) && t.stride(1) % 4 == 0
             : cuda::rows_are_wide<bfloat16>(t.raw_data(), t.stride(0), t.size(2)) && t.stride(1) % 8 == 0;
}

template <class Shape>
void decode_rows(const AttentionArgs& args, const NewToken* fresh) {
  using T = typename Shape::Element;
  std::int64_t rows = 0;
  const std::int64_t group = args.q.size(1) / args.k.size(1);
  for (const SequenceRange& s : args.sequences) rows = std::max(rows, s.q_length * group);
  const DecodeOperands<T> x{.q = args.q.data<T>(),
                            .k = args.k.data<T>(),
                            .v = args.v.data<T>(),
                            .out = args.out.data<T>(),
                            .q_row = args.q.stride(0),
                            .q_head = args.q.stride(1),
                            .k_row = args.k.stride(0),
                            .k_head = args.k.stride(1),
                            .v_row = args.v.stride(0),
                            .v_head = args.v.stride(1),
                            .heads = static_cast<int>(args.q.size(1)),
                            .group = static_cast<int>(group),
                            .dim = static_cast<int>(args.q.size(2)),
                            .causal = args.causal,
                            .q_is_wide = rows_are_wide(args.q),
                            .window = args.window,
                            .scale = args.scale * kLog2E,
                            .cap = args.soft_cap * kLog2E,
                            .sinks = args.sinks.defined() ? args.sinks.data<float>() : nullptr,
                            .last_key = args.last_key.defined() ? args.last_key.data<std::int32_t>() : nullptr,
                            .rows = args.q.size(0) * args.q.size(1),
                            .fresh = fresh != nullptr ? NewTokenOperands<T>(*fresh, args) : NewTokenOperands<T>()};
  // Short caches: one CTA per query head is faster.
  const std::int64_t sequences = static_cast<std::int64_t>(args.sequences.size());
  const bool few =
      std::ranges::all_of(args.sequences,
                          [&](const SequenceRange& s) { return most_visible(s, args.window) <= kMaxWhole; }) &&
      sequences * rows * args.k.size(1) <= sm_count(args.q.device());
  if (rows <= 1 || few)
    launch_decode<Shape, 1>(args, x);
  else if (rows <= 2)
    launch_decode<Shape, 2>(args, x);
  else if (rows <= 4)
    launch_decode<Shape, 4>(args, x);
  else
    launch_decode<Shape, kMaxRows>(args, x);
}

}  // namespace

bool decode_takes(const AttentionArgs& args) {
  if (args.lse.defined() || args.q.size(2) > 256 || !rows_are_wide(args.k) || !rows_are_wide(args.v)) return false;
  return std::all_of(args.sequences.begin(), args.sequences.end(), [&](const SequenceRange& s) {
    return s.q_length <= kMaxQueries && s.k_length <= kMaxPart * kMaxParts;
  });
}

void decode_attention(const AttentionArgs& args, const NewToken* fresh) {
  const std::int64_t dim = args.q.size(2);
  if (args.q.dtype() == DType::f32) {
    if (dim <= 64)
      decode_rows<DecodeShape<float, 16, 1>>(args, fresh);
    else if (dim <= 128)
      decode_rows<DecodeShape<float, 32, 1>>(args, fresh);
    else
      decode_rows<DecodeShape<float, 32, 2>>(args, fresh);
  } else {
    if (dim <= 64)
      decode_rows<DecodeShape<bfloat16, 8, 1>>(args, fresh);
    else if (dim <= 128)
      decode_rows<DecodeShape<bfloat16, 16, 1>>(args, fresh);
    else
      decode_rows<DecodeShape<bfloat16, 32, 1>>(args, fresh);
  }
}

}  // namespace quench::cuda
