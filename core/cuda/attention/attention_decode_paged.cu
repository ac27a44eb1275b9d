// Decode attention over a paged KV cache, one new token per sequence. A CTA has some heads of a KV head of a sequence
// and fixed parts of its keys, one after the other; lengths and pages are read from device memory, so that a launch
// serves any lengths up to the width of the page table. bf16: paged_mma.cuh. f32: a head per CTA (decode_split.cuh).

#include "core/cuda/attention/ordered_attention.h"
#include "core/cuda/attention/paged_launch.cuh"
#include "core/cuda/attention/paged_mma.cuh"
#include "core/device/determinism.h"

namespace quench::cuda {
namespace {

using F32Params = PagedParams<float, float>;

// Rows of K or V of a KV head in pages.
struct PagedKvRows {
  const float* first;
  std::int64_t stride;
  int count;
  std::int64_t begin;  // key 0 in the sequence
  const std::int32_t* pages;
  int page_bits;

  [[nodiscard]] __device__ std::int64_t row(int key) const {
    const std::int64_t at = begin + key;
    return (std::int64_t{pages[at >> page_bits]} << page_bits) + (at & ((std::int64_t{1} << page_bits) - 1));
  }
  [[nodiscard]] __device__ const float* operator[](int key) const { return first + row(key) * stride; }
};

// Head and keys of a CTA in a split. Grid: (sequence, head of the group), KV head, first split.
struct PagedTile {
  static constexpr int kRows = 1;
  int sequence, kv_head, split, first_row, sequence_rows, page_bits;
  const std::int32_t* pages;
  std::int64_t position, begin;
  int keys;
  NewTokenOperands<float> token;

  __device__ PagedTile(const F32Params& p, int of_split)
      : sequence(static_cast<int>(blockIdx.x) / p.row_blocks),
        kv_head(static_cast<int>(blockIdx.y)),
        split(of_split),
        first_row(static_cast<int>(blockIdx.x) % p.row_blocks),
        sequence_rows(p.group),
        page_bits(p.page_bits),
        pages(p.pages + sequence * p.pages_row),
        position(p.positions[sequence]),
        token(p.new_token) {
    begin = max(std::int64_t{split} * p.split_keys, first_paged_key(position, p.window, p.chunk));
    const std::int64_t end = min(std::int64_t{split + 1} * p.split_keys, position + 1);
    keys = static_cast<int>(max(std::int64_t{0}, end - begin));
    token.key += sequence * p.q_row;
    token.value += sequence * p.q_row;
    token.position += sequence;
    if (has_last_key(p)) token.page_row = rows(p.k, p).row(keys - 1);
  }
  [[nodiscard]] __device__ int row(int) const { return first_row; }
  template <class Params>
  [[nodiscard]] __device__ std::int64_t out_row(int, const Params& p) const {
    return std::int64_t{sequence} * p.heads + kv_head * p.group + first_row;
  }
  template <class Params>
  [[nodiscard]] __device__ const float* query(int, const Params& p) const {
    return p.q + sequence * p.q_row + (kv_head * p.group + first_row) * p.q_head;
  }
  template <class Params>
  [[nodiscard]] __device__ bool has_last_key(const Params&) const {
    return keys > 0 && begin + keys == position + 1;
  }
  template <class Params>
  __device__ void visible_range(const Params&, int, int& hidden, int& visible) const {
    hidden = 0;
    visible = keys;
  }
  template <class Params>
  [[nodiscard]] __device__ const NewTokenOperands<float>& new_token(const Params&) const {
    return token;
  }
  template <class Params>
  [[nodiscard]] __device__ PagedKvRows k(const Params& p) const {
    return rows(p.k + kv_head * p.k_head, p);
  }
  template <class Params>
  [[nodiscard]] __device__ PagedKvRows v(const Params& p) const {
    return rows(p.v + kv_head * p.v_head, p);
  }

 private:
  template <class Params>
  [[nodiscard]] __device__ PagedKvRows rows(const float* first, const Params& p) const {
    return {first, p.k_row, keys, begin, pages, page_bits};
  }
};

template <class Shape>
__global__ __launch_bounds__(Shape::kThreads) void paged_f32_kernel(const __grid_constant__ F32Params p) {
  extern __shared__ float4 shared[];
  pdl_sync();
  for (int split = static_cast<int>(blockIdx.z); split < p.splits; split += static_cast<int>(gridDim.z)) {
    const PagedTile tile(p, split);
    // Without splits a sequence without a token has its zeros written.
    if (p.splits > 1 && tile.keys == 0) continue;
    if (split != static_cast<int>(blockIdx.z)) __syncthreads();  // shared memory of the split before
    decode_tile<Shape>(reinterpret_cast<float*>(shared), tile, p);
  }
}

// Grid: sequence, head.
template <class T, class C>
__global__ __launch_bounds__(kCombineThreads) void combine_paged_kernel(const __grid_constant__ PagedParams<T, C> p) {
  extern __shared__ float4 shared[];
  pdl_sync();
  const std::int64_t row = std::int64_t{blockIdx.x} * p.heads + blockIdx.y, position = p.positions[blockIdx.x];
  if (position < 0) {
    for (int d = static_cast<int>(threadIdx.x); d < p.dim; d += kCombineThreads)
      p.out[row * p.dim + d] = from_float<T>(0.0f);
    return;
  }
  combine_row(reinterpret_cast<float*>(shared), row,
              static_cast<int>(first_paged_key(position, p.window, p.chunk) / p.split_keys),
              static_cast<int>(position / p.split_keys) + 1, static_cast<const DecodeParams<T, C>&>(p));
}

// `heads`: of a KV head, in a CTA.
template <class T, class C>
void launch_paged(const PagedAttentionArgs& args, void (*kernel)(PagedParams<T, C>), int heads, int threads,
                  std::size_t shared_bytes) {
  const OpLaunch launch("paged_attention", {&args.qkv, &args.cache, &args.pages, &args.positions, &args.out});
  auto params = paged_params<T, C>(args);
  const std::int64_t sequences = args.qkv.size(0);
  params.row_blocks = static_cast<int>(ceil_div(params.group, heads));
  params.split_keys = kPagedSplitKeys;
  params.splits =
      static_cast<int>(std::max<std::int64_t>(1, ceil_div(args.pages.size(1) * args.page, kPagedSplitKeys)));
  const MemoryScope scope(MemoryCategory::workspace);
  Tensor partial_out, partial_weight;
  if (params.splits > 1) {
    partial_out = f32_workspace(launch.device(), params.splits, params.rows, params.dim);
    partial_weight = f32_workspace(launch.device(), params.splits, params.rows, 2);
    params.partial_out = partial_out.data<float>();
    params.partial_weight = reinterpret_cast<float2*>(partial_weight.data<float>());
  }
  // CTAs for a few full waves, whatever share of the splits the sequences have.
  constexpr std::int64_t kBlocksPerSm = 12;
  const std::int64_t columns = sequences * params.row_blocks * args.kv_heads,
                     wanted = kBlocksPerSm * std::int64_t{sm_count(launch.device())};
  const auto depth = std::clamp<std::int64_t>(ceil_div(wanted, columns), 1, params.splits);
  const dim3 grid(static_cast<unsigned>(sequences * params.row_blocks), static_cast<unsigned>(args.kv_heads),
                  static_cast<unsigned>(depth));
  launch.early(sequences, kernel, grid, static_cast<unsigned>(threads), shared_bytes, params);
  if (params.splits == 1) return;
  const dim3 combine_grid(static_cast<unsigned>(sequences), static_cast<unsigned>(params.heads));
  launch.early(sequences, combine_paged_kernel<T, C>, combine_grid, kCombineThreads,
               sizeof(float) * 4 * static_cast<std::size_t>(ceil_div(params.splits, 4)), params);
}

template <int kLanes, int kPieces>
void launch_f32(const PagedAttentionArgs& args) {
  using Shape = DecodeShape<float, kLanes, kPieces, 256>;
  launch_paged<float, float>(args, paged_f32_kernel<Shape>, 1, Shape::kThreads,
                             split_shared_bytes<Shape, 1>(kPagedSplitKeys));
}

template <class C, int kDim>
void launch_mma(const PagedAttentionArgs& args) {
  using Shape = PagedMmaShape<C, kDim>;
  launch_paged<bfloat16, C>(args, paged_mma_kernel<Shape>, kPagedMmaHeads, kPagedMmaThreads,
                            sizeof(PagedMmaReduction<Shape>));
}

template <class C>
void paged_mma(const PagedAttentionArgs& args) {
  const std::int64_t dim = args.out.size(1) / args.heads;
  if (dim <= 64)
    launch_mma<C, 64>(args);
  else if (dim <= 128)
    launch_mma<C, 128>(args);
  else
    launch_mma<C, 256>(args);
}

void paged_attention_kernel(const PagedAttentionArgs& args) {
  if (batch_invariant() && !args.scales.defined()) return ordered_paged_attention(args);
  if (args.scales.defined())
    return args.cache.dtype() == DType::f8_e4m3 ? paged_mma<Float8>(args) : paged_mma<Int8>(args);
  if (args.qkv.dtype() == DType::bf16) return paged_mma<bfloat16>(args);
  const std::int64_t dim = args.out.size(1) / args.heads;
  if (dim <= 64)
    launch_f32<16, 1>(args);
  else if (dim <= 128)
    launch_f32<32, 1>(args);
  else
    launch_f32<32, 2>(args);
}

QUENCH_CUDA_KERNEL(paged_attention_slot, paged_attention_kernel);

}  // namespace
}  // namespace quench::cuda
