// Decode attention over a paged KV cache in the order of ordered_block.cuh: a warp has a block of 64 keys and up to 8
// query heads of a KV head at a time; a second kernel adds the blocks of each head in ascending order. Bound by reading
// the cache. A launch serves any lengths up to the width of the page table.

#include "core/cuda/attention/attention_sinks.cuh"
#include "core/cuda/attention/ordered_attention.h"
#include "core/cuda/attention/ordered_block.cuh"
#include "core/cuda/attention/paged_launch.cuh"
#include "core/cuda/attention/paged_piece.cuh"

namespace quench::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps, kOrderedCombineThreads = 128;

using Params = PagedParams<bfloat16, bfloat16>;

// Blocks of a sequence. A chunk's begin at its first key.
struct BlockRange {
  std::int64_t base, first_key, position;

  __device__ BlockRange(const Params& p, int sequence) : position(p.positions[sequence]) {
    base = p.chunk > 0 && position >= 0 ? position / p.chunk * p.chunk : 0;
    first_key = max(base, first_paged_key(position, p.window, p.chunk));
  }
  [[nodiscard]] __device__ int first() const { return static_cast<int>((first_key - base) / kOrderedKeys); }
  [[nodiscard]] __device__ int end() const {
    return position < 0 ? 0 : static_cast<int>((position - base) / kOrderedKeys) + 1;
  }
};

// K or V of a block to shared memory, by a warp; zeros past the earlier tokens and past the head.
template <class Shape>
__device__ __forceinline__ void load_paged(std::uint32_t to, const bfloat16* from, std::int64_t stride, const Params& p,
                                           int sequence, std::int64_t first, int count) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int32_t* const pages = p.pages + sequence * p.pages_row;
  const std::int64_t mask = (std::int64_t{1} << p.page_bits) - 1;
#pragma unroll 8
  for (int i = 0; i < kOrderedKeys * Shape::kUnits / 32; ++i) {
    const int at = i * 32 + lane, key = at / Shape::kUnits, unit = at % Shape::kUnits;
    const bool valid = key < count && unit * 8 < p.dim;
    const std::int64_t place = first + key;
    const std::int64_t row = valid ? (std::int64_t{pages[place >> p.page_bits]} << p.page_bits) + (place & mask) : 0;
    cp_async_16(to + Shape::offset(key, unit), from + row * stride + unit * 8, valid);
  }
}

template <class Shape>
__global__ __launch_bounds__(kThreads) void ordered_paged_kernel(const __grid_constant__ Params p) {
  extern __shared__ uint4 shared[];
  using Piece = PagedMmaShape<bfloat16, Shape::kDim>;
  __shared__ NewPagedRow<Piece> new_row;
  __shared__ Vector<bfloat16> rows[kPagedMmaHeads][Shape::kUnits];
  pdl_launch_dependents();
  if (!p.constant_cache) pdl_wait();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int sequence = static_cast<int>(blockIdx.x) / p.row_blocks, kv_head = static_cast<int>(blockIdx.y);
  const BlockRange range(p, sequence);
  const int first_block = range.first() + static_cast<int>(blockIdx.z) * kWarps,
            step = static_cast<int>(gridDim.z) * kWarps;
  const auto keys = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)) + 2 * Shape::kBlockBytes * warp,
             values = keys + Shape::kBlockBytes;
  // First key of a block, and its number of earlier tokens.
  const auto first_key = [&](int block) { return range.base + std::int64_t{block} * kOrderedKeys; };
  const auto earlier = [&](int block) {
    return static_cast<int>(min(std::int64_t{kOrderedKeys}, range.position - first_key(block)));
  };
  const auto load_block = [&](int block) {
    if (block < range.end())
      load_paged<Shape>(keys, p.k + kv_head * p.k_head, p.k_row, p, sequence, first_key(block), earlier(block));
    cp_async_commit();
    if (block < range.end())
      load_paged<Shape>(values, p.v + kv_head * p.v_head, p.v_row, p, sequence, first_key(block), earlier(block));
    cp_async_commit();
  };
  load_block(first_block + warp);  // while the kernel before ends
  if (p.constant_cache) pdl_wait();
  if (first_block >= range.end()) return cp_async_wait<0>();

  const PagedMmaTile<Piece> tile(p, static_cast<int>(range.position / p.split_keys));
  // The CTA whose warp has the last block, that of the new token.
  if ((range.end() - 1 - range.first()) / kWarps % static_cast<int>(gridDim.z) == static_cast<int>(blockIdx.z))
    new_row.make(tile);
  for (int i = static_cast<int>(threadIdx.x); i < kPagedMmaHeads * Shape::kUnits; i += kThreads) {
    const int r = i / Shape::kUnits, d = i % Shape::kUnits * 8;
    Vector<bfloat16> row{};
    if (d < p.dim)
      row = p.new_token.rotated(p.q + sequence * p.q_row + tile.head(r) * p.q_head,
                                p.new_token.angles(d, p.dim, range.position), d, p.dim);
    rows[r][d / 8] = row;
  }
  __syncthreads();

  OrderedQueries<Shape> q[1];
#pragma unroll
  for (int i = 0; i < Shape::kSteps; ++i) {
    const auto* const row = reinterpret_cast<const std::uint32_t*>(&rows[lane / 4][0]) + 8 * i + lane % 4;
    q[0].words[i][0] = row[0];
    q[0].words[i][2] = row[4];
    q[0].words[i][1] = q[0].words[i][3] = 0;
  }
  for (int block = first_block + warp; block < range.end(); block += step) {
    const bool has_new = earlier(block) < kOrderedKeys;
    const auto take = [&](std::uint32_t to, const std::uint32_t(&row)[Shape::kUnits][4]) {
      if (has_new && lane < Shape::kUnits)
        asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to + Shape::offset(earlier(block), lane)),
                     "r"(row[lane][0]), "r"(row[lane][1]), "r"(row[lane][2]), "r"(row[lane][3])
                     : "memory");
      __syncwarp();
    };
    cp_async_wait<1>();
    __syncwarp();  // rows of other lanes
    take(keys, new_row.key);
    const int begin = static_cast<int>(max(std::int64_t{0}, range.first_key - first_key(block))),
              end = earlier(block) + (has_new ? 1 : 0);
    const OrderedVisible visible[1] = {{{begin, begin}, {end, end}}};
    const OrderedScale scale{p.scale, p.cap};
    OrderedWeights weights[1];
    if (begin == 0 && end == kOrderedKeys)
      ordered_weights<false>(weights, q, keys, visible, scale);
    else
      ordered_weights<true>(weights, q, keys, visible, scale);
    cp_async_wait<0>();
    __syncwarp();
    take(values, new_row.value);
    const int head = tile.first_head + lane / 4;
    const bool stores = head < p.group;
    const std::int64_t row = std::int64_t{sequence} * p.heads + kv_head * p.group + head,
                       partial = std::int64_t{block} * p.rows + row;
    if (stores && lane % 4 == 0) p.partial_weight[partial] = make_float2(weights[0].maximum[0], weights[0].sum[0]);
#pragma unroll
    for (int n = 0; n < Shape::kSteps; ++n) {
      float sums[1][2][4];
      ordered_values<Shape>(sums, weights, values, n);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int d = 16 * n + 8 * h + lane % 4 * 2;
        if (stores && d < p.dim)
          *reinterpret_cast<float2*>(p.partial_out + partial * p.dim + d) = make_float2(sums[0][h][0], sums[0][h][1]);
      }
    }
    __syncwarp();  // the block is read
    load_block(block + step);
  }
  cp_async_wait<0>();
}

// Grid: sequence, head.
__global__ __launch_bounds__(kOrderedCombineThreads) void ordered_combine_kernel(const __grid_constant__ Params p) {
  pdl_sync();
  const BlockRange range(p, static_cast<int>(blockIdx.x));
  const std::int64_t row = std::int64_t{blockIdx.x} * p.heads + blockIdx.y;
  const int d = static_cast<int>(threadIdx.x);
  OrderedTotal total;
  float out = 0;
#pragma unroll 4
  for (int block = range.first(); block < range.end(); ++block) {
    const std::int64_t partial = std::int64_t{block} * p.rows + row;
    const float2 weight = p.partial_weight[partial];
    const float sum = d < p.dim ? p.partial_out[partial * p.dim + d] : 0.0f;
    total.add(weight.x, weight.y);
    out = total.merged(out, sum);
  }
  if (d >= p.dim) return;
  bfloat16 result = from_float<bfloat16>(out * total.factor());
  if (p.sinks != nullptr && total.sum != 0.0f)
    result = from_float<bfloat16>(to_float(result) * SinkedRow(total.lse(), p.sinks[blockIdx.y]).factor);
  p.out[row * p.dim + d] = result;
}

template <int kDim>
void launch_paged(const PagedAttentionArgs& args) {
  using Shape = OrderedShape<kDim>;
  const OpLaunch launch("paged_attention", {&args.qkv, &args.cache, &args.pages, &args.positions, &args.out});
  Params params = paged_params<bfloat16, bfloat16>(args);
  params.cap = unscaled_cap(args.soft_cap, args.scale);
  params.row_blocks = static_cast<int>(ceil_div(params.group, kPagedMmaHeads));
  params.split_keys = kOrderedKeys;
  const std::int64_t sequences = args.qkv.size(0), blocks = ceil_div(args.pages.size(1) * args.page, kOrderedKeys);
  params.splits = static_cast<int>(blocks);
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor partial_out = f32_workspace(launch.device(), blocks, params.rows, params.dim),
               partial_weight = f32_workspace(launch.device(), blocks, params.rows, 2);
  params.partial_out = partial_out.data<float>();
  params.partial_weight = reinterpret_cast<float2*>(partial_weight.data<float>());
  constexpr std::int64_t kBlocksPerSm = 12;
  const std::int64_t columns = sequences * params.row_blocks * args.kv_heads,
                     wanted = kBlocksPerSm * std::int64_t{sm_count(launch.device())};
  const auto depth = std::clamp<std::int64_t>(ceil_div(wanted, columns), 1, ceil_div(blocks, kWarps));
  const dim3 grid(static_cast<unsigned>(sequences * params.row_blocks), static_cast<unsigned>(args.kv_heads),
                  static_cast<unsigned>(depth));
  launch.early(sequences, ordered_paged_kernel<Shape>, grid, kThreads, std::size_t{2 * kWarps} * Shape::kBlockBytes,
               params);
  launch.early(sequences, ordered_combine_kernel,
               dim3(static_cast<unsigned>(sequences), static_cast<unsigned>(params.heads)), kOrderedCombineThreads, 0,
               params);
}

}  // namespace

void ordered_paged_attention(const PagedAttentionArgs& args) {
  if (args.out.size(1) / args.heads <= 64)
    launch_paged<64>(args);
  else
    launch_paged<128>(args);
}

}  // namespace quench::cuda
