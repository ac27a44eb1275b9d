// SM90 batched symmetric GEMM (Muon's Gram matrices): persistent kernel over 256x256 tiles of the lower triangle,
// mirrored on store.

#include "core/cuda/common/pack.cuh"
#include "core/cuda/sm90/kernels.h"
#include "core/cuda/sm90/mainloop.cuh"
#include "core/cuda/sm90/tensor_map.h"

namespace quench::cuda {
namespace {

constexpr int kClusterSize = 2;  // 2 x 128 rows: square tiles
constexpr int kSliceColumns = kSwizzleBytes / static_cast<int>(sizeof(bfloat16));

struct SymmetricEpilogue {
  const bfloat16* addend;  // [E,N,N], optional
  const float* scales;     // per matrix, optional
  float alpha, beta, diagonal;
};

__device__ std::uint32_t load_word(std::uint32_t from) {
  std::uint32_t word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
  return word;
}

// body(smem, row, column) per 16-byte chunk of a 16x64 slice; coalesced.
template <class Body>
__device__ void for_chunks(std::uint32_t out, const ProblemShape& s, const WorkTile& work, std::int64_t first_row,
                           std::int64_t first, const Body& body) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = 4 * i + lane / 8, chunk = lane % 8;
    const std::int64_t column = first + chunk * 8;
    if (first_row + row < work.end && column < s.columns)
      body(out + static_cast<std::uint32_t>(row) * kEpilogueRowBytes + static_cast<std::uint32_t>(chunk) * 16,
           first_row + row, column);
  }
}

// 16x64 slice, transposed: two columns per lane, 32 bytes each.
__device__ void store_transposed(std::uint32_t out, bfloat16* c, const ProblemShape& s, const WorkTile& work,
                                 std::int64_t first_row, std::int64_t first) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t column = first + 2 * lane;
  std::uint32_t words[16];
#pragma unroll
  for (int row = 0; row < 16; ++row)
    words[row] =
        load_word(out + static_cast<std::uint32_t>(row) * kEpilogueRowBytes + static_cast<std::uint32_t>(lane) * 4);
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

// During the mainloop, two 128-byte lines per lane.
__device__ void prefetch_addend(const ProblemShape& s, const WorkTile& work, const SymmetricEpilogue& params) {
  if (params.addend == nullptr) return;
  const int consumer = static_cast<int>(threadIdx.x) / 32 - 4, lane = static_cast<int>(threadIdx.x) % 32;
  const bfloat16* matrix = params.addend + std::int64_t{work.group} * s.rows * s.columns;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::int64_t row = work.row + 16 * consumer + 8 * i + lane / 4,
                       column = work.column + lane % 4 * kSliceColumns;
    if (row < work.end && column < s.columns)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(matrix + row * s.columns + column));
  }
}

// 64 columns at a time; the addend shares the staging memory.
__device__ void store_symmetric(const SharedStorage& shared, const float (&acc)[128], bfloat16* batch,
                                const ProblemShape& s, const WorkTile& work, const SymmetricEpilogue& params) {
  const int consumer = static_cast<int>(threadIdx.x) / 32 - 4, lane = static_cast<int>(threadIdx.x) % 32;
  const std::uint32_t out = shared.out + static_cast<std::uint32_t>(consumer) * kEpilogueWarpBytes;
  const std::int64_t first_row = work.row + 16 * consumer, matrix = std::int64_t{work.group} * s.rows * s.columns;
  const bool below = work.column + kTileN <= work.row;
  bfloat16* c = batch + matrix;
  const float factor = params.scales != nullptr ? params.scales[work.group] : 1.0f;
#pragma unroll
  for (int part = 0; part < kTileN / kSliceColumns; ++part) {
    const std::int64_t first = work.column + part * kSliceColumns;
    if (first >= s.columns) return;
    if (params.addend != nullptr) {
      for_chunks(out, s, work, first_row, first, [&](std::uint32_t to, std::int64_t row, std::int64_t column) {
        const uint4 old = *reinterpret_cast<const uint4*>(params.addend + matrix + row * s.columns + column);
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(old.x), "r"(old.y), "r"(old.z),
                     "r"(old.w)
                     : "memory");
      });
      __syncwarp();
    }
#pragma unroll
    for (int j = 0; j < kSliceColumns / 8; ++j) {
      const int block = part * (kSliceColumns / 8) + j;
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const int row = lane / 4 + 8 * side, column = 8 * j + lane % 4 * 2;
        const std::uint32_t at =
            out + static_cast<std::uint32_t>(row) * kEpilogueRowBytes + static_cast<std::uint32_t>(column) * 2;
        float2 pair =
            make_float2(params.alpha * acc[4 * block + 2 * side], params.alpha * acc[4 * block + 2 * side + 1]);
        if (params.addend != nullptr) {
          const float2 old = unpack_pair<bfloat16>(load_word(at));
          pair = make_float2(pair.x + params.beta * old.x, pair.y + params.beta * old.y);
        }
        const std::int64_t diagonal_offset = first + column - (first_row + row);
        if (diagonal_offset == 0) pair.x += params.diagonal;
        if (diagonal_offset == -1) pair.y += params.diagonal;
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(pack_pair<bfloat16>(pair.x * factor, pair.y * factor))
                     : "memory");
      }
    }
    __syncwarp();
    for_chunks(out, s, work, first_row, first, [&](std::uint32_t from, std::int64_t row, std::int64_t column) {
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

template <GemmKind kKind>
__global__ __cluster_dims__(kClusterSize, 1, 1)
    __launch_bounds__(kCtaThreads, 1) void symmetric_kernel(const __grid_constant__ CUtensorMap map_a,
                                                            const __grid_constant__ CUtensorMap map_b, bfloat16* c,
                                                            ProblemShape s, SymmetricEpilogue params) {
  extern __shared__ unsigned char memory[];
  run_persistent_gemm<kKind, bfloat16, kClusterSize>(
      memory, &map_a, &map_b, nullptr, s, [&](const SharedStorage& shared, std::uint32_t rank) {
        PipelineState pipe;
        float acc[128];
        for (int tile = static_cast<int>(blockIdx.x) / kClusterSize;;
             tile += static_cast<int>(gridDim.x) / kClusterSize) {
          const WorkTile work = work_tile<kKind, kClusterSize>(nullptr, s, tile, rank);
          if (work.group < 0) return;
          prefetch_addend(s, work, params);
          mainloop<kKind, bfloat16, kClusterSize>(acc, pipe, shared, work);
          store_symmetric(shared, acc, c, s, work, params);
        }
      });
}

const float* factors_of(const SymmetricGemmArgs& args) {
  return args.factors.defined() ? args.factors.data<float>() : nullptr;
}

template <GemmKind kKind>
void launch_tiles(const OpLaunch& launch, const SymmetricGemmArgs& args) {
  using Layout = OperandLayout<kKind, bfloat16>;
  const std::int64_t n = args.c.size(1);
  const ProblemShape shape{.groups = static_cast<int>(args.c.size(0)),
                           .tiles_m = ceil_div(n, kTileN),
                           .tiles_n = 0,
                           .rows = n,
                           .columns = n,
                           .k = args.a.size(Layout::kMnMajorA ? 1 : 2)};
  const std::int64_t tiles = std::int64_t{shape.groups} * shape.tiles_m * (shape.tiles_m + 1) / 2;
  const CUtensorMap map_a = make_tensor_map(args.a, Layout::kMnMajorA ? 64 : kTileM, 64);
  const CUtensorMap map_b = make_tensor_map(args.b, Layout::kMnMajorB ? 64 : kTileN / kClusterSize, 64);
  launch(symmetric_kernel<kKind>, persistent_grid(launch, tiles, kClusterSize), kCtaThreads, kSmemBytes, map_a, map_b,
         args.c.data<bfloat16>(), shape,
         SymmetricEpilogue{args.beta != 0.0f ? args.addend.data<bfloat16>() : nullptr, factors_of(args), args.alpha,
                           args.beta, args.diagonal});
}

bool is_tiled(const SymmetricGemmArgs& args, const OpLaunch& launch) {
  constexpr std::int64_t kFewestRows = 256;
  const std::int64_t n = args.c.size(1);
  const auto has_wide_rows = [](const Tensor& t) {
    return t.dtype() == DType::bf16 && rows_are_wide<bfloat16>(t.raw_data(), t.size(-1), t.size(-1));
  };
  return n >= kFewestRows && args.a.size(args.transpose ? 1 : 2) > 0 && has_wide_rows(args.a) &&
         has_wide_rows(args.b) && has_wide_rows(args.c) && (args.beta == 0.0f || has_wide_rows(args.addend)) &&
         has_sm90_code(launch.device());
}

}  // namespace

bool symmetric_gemm_sm90(const OpLaunch& launch, const SymmetricGemmArgs& args) {
  if (!is_tiled(args, launch)) return false;
  args.transpose ? launch_tiles<GemmKind::symmetric_mn_major>(launch, args)
                 : launch_tiles<GemmKind::symmetric>(launch, args);
  return true;
}

}  // namespace quench::cuda
