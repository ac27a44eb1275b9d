// Symmetric products. On compute capability 9.0 the tiles of 256 x 256 up to the diagonal by the persistent kernels of
// tile_pipeline.cuh; each tile below it is also stored above it, transposed. Elsewhere whole products.

#include "core/ops/optimizer/symmetric_gemm.h"

#include "core/cuda/tiles/bf16_sums.cuh"
#include "core/cuda/tiles/tensor_map.h"
#include "core/ops/gemm.h"

namespace quench::cuda {
namespace {

constexpr int kPair = 2;  // blocks of a cluster: their rows are as many as a tile's columns
constexpr int kPartColumns = kLineBytes / static_cast<int>(sizeof(bfloat16));

struct SymmetricSum {
  const bfloat16* addend;  // of the batch; null: none
  const float* factors;    // of its matrices; null: 1
  float alpha, beta, diagonal;
};

__device__ std::uint32_t load_word(std::uint32_t from) {
  std::uint32_t word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
  return word;
}

// Calls body(to, row, column) for the pieces of 16 bytes that a lane moves of a warp's 16 rows x 64 columns: `to` in
// shared memory. Neighbours have neighbouring pieces.
template <class Body>
__device__ void for_pieces(std::uint32_t out, const TileShape& s, const TileWork& work, std::int64_t first_row,
                           std::int64_t first, const Body& body) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = 4 * i + lane / 8, piece = lane % 8;
    const std::int64_t column = first + piece * 8;
    if (first_row + row < work.end && column < s.columns)
      body(out + static_cast<std::uint32_t>(row) * kOutLine + static_cast<std::uint32_t>(piece) * 16, first_row + row,
           column);
  }
}

// Stores a warp's 16 x 64 results above the diagonal: two columns a lane, each a row of 32 bytes.
__device__ void store_transposed(std::uint32_t out, bfloat16* c, const TileShape& s, const TileWork& work,
                                 std::int64_t first_row, std::int64_t first) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t column = first + 2 * lane;
  std::uint32_t words[16];
#pragma unroll
  for (int row = 0; row < 16; ++row)
    words[row] = load_word(out + static_cast<std::uint32_t>(row) * kOutLine + static_cast<std::uint32_t>(lane) * 4);
  if (column >= s.columns) return;
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const std::uint32_t halves = side == 0 ? 0x5410u : 0x7632u;
    bfloat16* to = c + (column + side) * s.columns + first_row;
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      if (first_row + 8 * part >= work.end) continue;
      const std::uint32_t* w = words + 8 * part;
      reinterpret_cast<uint4*>(to)[part] = make_uint4(__byte_perm(w[0], w[1], halves), __byte_perm(w[2], w[3], halves),
                                                      __byte_perm(w[4], w[5], halves), __byte_perm(w[6], w[7], halves));
    }
  }
}

// Brings a warp's part of the addend nearer while its products are summed: two lines of 128 bytes a lane.
__device__ void prefetch_addend(const TileShape& s, const TileWork& work, const SymmetricSum& sum) {
  if (sum.addend == nullptr) return;
  const int consumer = static_cast<int>(threadIdx.x) / 32 - 4, lane = static_cast<int>(threadIdx.x) % 32;
  const bfloat16* matrix = sum.addend + std::int64_t{work.group} * s.rows * s.columns;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::int64_t row = work.row + 16 * consumer + 8 * i + lane / 4,
                       column = work.column + lane % 4 * kPartColumns;
    if (row < work.end && column < s.columns)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(matrix + row * s.columns + column));
  }
}

// A warp's 16 x 256 results, 64 columns at a time through shared memory, where the addend waits for them.
__device__ void store_symmetric(const TileMemory& shared, const float (&sums)[128], bfloat16* batch, const TileShape& s,
                                const TileWork& work, const SymmetricSum& sum) {
  const int consumer = static_cast<int>(threadIdx.x) / 32 - 4, lane = static_cast<int>(threadIdx.x) % 32;
  const std::uint32_t out = shared.out + static_cast<std::uint32_t>(consumer) * kOutBytes;
  const std::int64_t first_row = work.row + 16 * consumer, matrix = std::int64_t{work.group} * s.rows * s.columns;
  const bool below = work.column + kTileColumns <= work.row;
  bfloat16* c = batch + matrix;
  const float factor = sum.factors != nullptr ? sum.factors[work.group] : 1.0f;
#pragma unroll
  for (int part = 0; part < kTileColumns / kPartColumns; ++part) {
    const std::int64_t first = work.column + part * kPartColumns;
    if (first >= s.columns) return;
    if (sum.addend != nullptr) {
      for_pieces(out, s, work, first_row, first, [&](std::uint32_t to, std::int64_t row, std::int64_t column) {
        const uint4 old = *reinterpret_cast<const uint4*>(sum.addend + matrix + row * s.columns + column);
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(old.x), "r"(old.y), "r"(old.z),
                     "r"(old.w)
                     : "memory");
      });
      __syncwarp();
    }
#pragma unroll
    for (int j = 0; j < kPartColumns / 8; ++j) {
      const int block = part * (kPartColumns / 8) + j;
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const int row = lane / 4 + 8 * side, column = 8 * j + lane % 4 * 2;
        const std::uint32_t at =
            out + static_cast<std::uint32_t>(row) * kOutLine + static_cast<std::uint32_t>(column) * 2;
        float2 pair = make_float2(sum.alpha * sums[4 * block + 2 * side], sum.alpha * sums[4 * block + 2 * side + 1]);
        if (sum.addend != nullptr) {
          const float2 old = unpack_pair<bfloat16>(load_word(at));
          pair = make_float2(pair.x + sum.beta * old.x, pair.y + sum.beta * old.y);
        }
        const std::int64_t right = first + column - (first_row + row);  // of the diagonal
        if (right == 0) pair.x += sum.diagonal;
        if (right == -1) pair.y += sum.diagonal;
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(pack_pair<bfloat16>(pair.x * factor, pair.y * factor))
                     : "memory");
      }
    }
    __syncwarp();
    for_pieces(out, s, work, first_row, first, [&](std::uint32_t from, std::int64_t row, std::int64_t column) {
      uint4 words;
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                   : "r"(from)
                   : "memory");
      *reinterpret_cast<uint4*>(c + row * s.columns + column) = words;
    });
    if (below) store_transposed(out, c, s, work, first_row, first);
    __syncwarp();
  }
}

template <Product kProduct>
__global__ __cluster_dims__(kPair, 1, 1)
    __launch_bounds__(kTileThreads, 1) void symmetric_kernel(const __grid_constant__ CUtensorMap left,
                                                             const __grid_constant__ CUtensorMap right, bfloat16* c,
                                                             TileShape s, SymmetricSum sum) {
  extern __shared__ unsigned char memory[];
  run_tiles<kProduct, bfloat16, kPair>(
      memory, &left, &right, nullptr, s, [&](const TileMemory& shared, std::uint32_t rank) {
        TileRing ring;
        float sums[128];
        for (int tile = static_cast<int>(blockIdx.x) / kPair;; tile += static_cast<int>(gridDim.x) / kPair) {
          const TileWork work = find_work<kProduct, kPair>(nullptr, s, tile, rank);
          if (work.group < 0) return;
          prefetch_addend(s, work, sum);
          sum_tile<kProduct, kPair>(sums, ring, shared, work);
          store_symmetric(shared, sums, c, s, work, sum);
        }
      });
}

const float* factors_of(const SymmetricGemmArgs& args) {
  return args.factors.defined() ? args.factors.data<float>() : nullptr;
}

template <Product kProduct>
void launch_tiles(const OpLaunch& launch, const SymmetricGemmArgs& args) {
  using Layout = TileLayout<kProduct, bfloat16>;
  const std::int64_t n = args.c.size(1);
  const TileShape shape{.groups = static_cast<int>(args.c.size(0)),
                        .row_tiles = tiles_of(n, kTileColumns),
                        .column_tiles = 0,
                        .rows = n,
                        .columns = n,
                        .depth = args.a.size(Layout::kOuterLeft ? 1 : 2)};
  const std::int64_t tiles = std::int64_t{shape.groups} * shape.row_tiles * (shape.row_tiles + 1) / 2;
  const CUtensorMap left = make_tensor_map(args.a, Layout::kOuterLeft ? 64 : kTileRows, 64);
  const CUtensorMap right = make_tensor_map(args.b, Layout::kOuterRight ? 64 : kTileColumns / kPair, 64);
  launch(symmetric_kernel<kProduct>, tile_blocks(launch, tiles, kPair), kTileThreads, kTileSharedBytes, left, right,
         args.c.data<bfloat16>(), shape,
         SymmetricSum{args.beta != 0.0f ? args.addend.data<bfloat16>() : nullptr, factors_of(args), args.alpha,
                      args.beta, args.diagonal});
}

bool is_tiled(const SymmetricGemmArgs& args, const OpLaunch& launch) {
  constexpr std::int64_t kFewestRows = 256;
  const std::int64_t n = args.c.size(1);
  const auto is_wide = [](const Tensor& t) {
    return t.dtype() == DType::bf16 && rows_are_wide<bfloat16>(t.raw_data(), t.size(-1), t.size(-1));
  };
  return n >= kFewestRows && args.a.size(args.transpose ? 1 : 2) > 0 && is_wide(args.a) && is_wide(args.b) &&
         is_wide(args.c) && (args.beta == 0.0f || is_wide(args.addend)) && has_tile_code(launch.device());
}

template <class T>
__global__ void finish_kernel(T* c, std::int64_t n, std::int64_t elements, float diagonal, const float* factors) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= elements) return;
  const std::int64_t matrix = i / (n * n), at = i - matrix * n * n;
  const float value = to_float(c[i]) + (at / n == at % n ? diagonal : 0.0f);
  c[i] = from_float<T>(factors != nullptr ? value * factors[matrix] : value);
}

void symmetric_gemm_cuda(const SymmetricGemmArgs& args) {
  const OpLaunch launch("symmetric_gemm", {&args.a, &args.b, &args.c, &args.addend, &args.factors});
  if (is_tiled(args, launch))
    return args.transpose ? launch_tiles<Product::symmetric_outer>(launch, args)
                          : launch_tiles<Product::symmetric>(launch, args);
  for (std::int64_t i = 0; i < args.c.size(0); ++i)
    gemm({.a = args.a.select(0, i),
          .b = args.b.select(0, i),
          .c = args.c.select(0, i),
          .transpose_a = args.transpose,
          .transpose_b = !args.transpose,
          .alpha = args.alpha,
          .beta = args.beta,
          .addend = args.beta != 0.0f ? args.addend.select(0, i) : Tensor()});
  if (args.diagonal == 0.0f && !args.factors.defined()) return;
  dispatch<float, bfloat16>(args.c.dtype(), "symmetric_gemm", [&]<class T>() {
    launch(finish_kernel<T>, static_cast<unsigned>(tiles_of(args.c.numel(), 256)), 256, 0, args.c.data<T>(),
           args.c.size(1), args.c.numel(), args.diagonal, factors_of(args));
  });
}

QUENCH_CUDA_KERNEL(symmetric_gemm_slot, symmetric_gemm_cuda);

}  // namespace
}  // namespace quench::cuda
