// Dense and grouped float8 GEMMs by mma.sync: tensorwise, rowwise and block scaling. Dense int8 GEMMs, rowwise.

#include "core/cuda/common/group_tiles.cuh"
#include "core/cuda/common/pack.cuh"
#include "core/cuda/sm80/float8_mma.cuh"
#include "core/cuda/sm80/kernels.h"

namespace quench::cuda {
namespace {

constexpr std::int64_t kMaxGridRows = 65535;  // limit of gridDim.y

// Operands are K-major, in bytes; C is row-major.
template <class C>
struct Float8Problem {
  const std::uint8_t *a, *b;
  C* c;
  const std::int32_t* ends;  // null: one group of all rows
  int groups;
  std::int64_t rows, n, k;  // wgrad: rows of C, K of all groups together
  std::int64_t ldc;
  float beta;
};

// Tile of one group.
struct TileAt {
  std::int64_t row, column;  // first of A and of B
  std::int64_t end_row, end_column;
  std::int64_t first_block;  // K block of the group's first
  int group;
};

// Row and column of a thread's accumulator values[i][j][2 half + side] within the tile.
__device__ inline int row_of(int i, int half) {
  return static_cast<int>(threadIdx.x) / 32 / 4 * 64 + static_cast<int>(threadIdx.x) % 32 / 4 + 16 * i + 8 * half;
}
__device__ inline int column_of(int j) {
  return static_cast<int>(threadIdx.x) / 32 % 4 * 32 + static_cast<int>(threadIdx.x) % 4 * 2 + 8 * j;
}

// One quantization scale per row of A and B; a step of 0 is tensorwise. Applied to the accumulators.
struct RowwiseScales {
  const float *rows, *columns;
  std::int64_t row_step, column_step;
  std::int64_t group_rows, group_columns;  // elements between groups

  __device__ void promote(MmaSums& total, MmaSums& part, const TileAt&, std::int64_t) const {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int v = 0; v < 4; ++v) total.values[i][j][v] += part.values[i][j][v];
    part = {};
  }
  __device__ void finish(MmaSums& total, MmaSums&, const TileAt& at) const {
    scale<true>(total, at);
  }
  // kReciprocal: encode scales.
  template <bool kReciprocal>
  __device__ void scale(MmaSums& total, const TileAt& at) const {
    const auto factor = [](float scale) { return kReciprocal ? __frcp_rn(scale) : scale; };
    float of_columns[4][2];
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const std::int64_t column = at.column + column_of(j) + side;
        of_columns[j][side] =
            column < at.end_column ? factor(columns[at.group * group_columns + column * column_step]) : 0.0f;
      }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::int64_t row = at.row + row_of(i, half);
        const float of_row = row < at.end_row ? factor(rows[at.group * group_rows + row * row_step]) : 0.0f;
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
          for (int side = 0; side < 2; ++side) {
            float& value = total.values[i][j][2 * half + side];
            value = value * of_row * of_columns[j][side];
          }
      }
  }
};

// Decode scales of int8. s32 sums over kExactDepth of K stay below 2^31; each is rounded to f32 once.
struct Int8Scales : RowwiseScales {
  static constexpr std::int64_t kExactDepth = 65536, kSteps = kExactDepth / kFloat8MmaDepth;

  __device__ void promote(MmaSums& total, MmaSums& part, const TileAt&, std::int64_t step) const {
    if ((step + 1) % kSteps == 0) add(total, part);
  }
  __device__ void finish(MmaSums& total, MmaSums& part, const TileAt& at) const {
    add(total, part);
    scale<false>(total, at);
  }
  static __device__ void add(MmaSums& total, MmaSums& part) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int v = 0; v < 4; ++v) total.values[i][j][v] += static_cast<float>(__float_as_int(part.values[i][j][v]));
    part = {};
  }
};

// Dequantization scales of 1x128 groups of A, [blocks,rows], and of 128x128 blocks of B or (kLines) 1x128 groups.
template <bool kLines>
struct BlockwiseScales {
  const float *rows, *columns;
  std::int64_t row_count, column_count;  // extents of all rows and columns
  std::int64_t column_blocks, blocks;    // 128x128: [groups,column_blocks,blocks]

  __device__ void promote(MmaSums& total, MmaSums& part, const TileAt& at, std::int64_t step) const {
    const std::int64_t block = at.first_block + step;
    float of_columns[4][2];
    if constexpr (kLines) {
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          const std::int64_t column = at.column + column_of(j) + side;
          of_columns[j][side] = column < at.end_column ? columns[block * column_count + column] : 0.0f;
        }
    } else {
      static_assert(kMmaTile == kFloat8Block);
      of_columns[0][0] = columns[(at.group * column_blocks + at.column / kFloat8Block) * blocks + block];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::int64_t row = at.row + row_of(i, half);
        const float of_row = row < at.end_row ? rows[block * row_count + row] : 0.0f;
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
          for (int side = 0; side < 2; ++side) {
            float& value = total.values[i][j][2 * half + side];
            value = fmaf(part.values[i][j][2 * half + side], of_row * (kLines ? of_columns[j][side] : of_columns[0][0]),
                         value);
          }
      }
    part = {};
  }
  __device__ void finish(MmaSums&, MmaSums&, const TileAt&) const {}
};

__device__ inline MmaOperand pairs(const std::uint8_t* codes, std::int64_t row_bytes, std::int64_t extent,
                                   std::int64_t depth) {
  return {reinterpret_cast<const bfloat16*>(codes), row_bytes / 2, extent, depth / 2};
}

template <class Mma, class Scales>
__device__ void multiply_scaled(MmaSums& total, unsigned char* memory, const MmaOperand& a, const MmaOperand& b,
                                const Scales& scales, const TileAt& at) {
  MmaSums part;
  multiply_tile<true, true, Mma>(part, static_cast<std::uint32_t>(__cvta_generic_to_shared(memory)), a, b,
                                 [&](std::int64_t step) { scales.promote(total, part, at, step); });
  scales.finish(total, part, at);
}

// kRoundsTwice: the GEMM is rounded to C before the addition, as by cuBLASLt.
template <bool kRoundsTwice, class C>
__device__ void store_tile(const MmaSums& sums, C* c, const TileAt& at, std::int64_t ldc, float beta) {
  for_sums(sums, [&](int i, int j, float first, float second) {
    if (at.row + i >= at.end_row || at.column + j >= at.end_column) return;
    C* to = c + (at.row + i) * ldc + at.column + j;
    if (beta != 0.0f) {
      if constexpr (kRoundsTwice) {
        first = to_float(from_float<C>(first));
        second = to_float(from_float<C>(second));
      }
      first += beta * to_float(to[0]);
      second += beta * to_float(to[1]);
    }
    store_values<C, 2>(to, 0, Vector<float, 2>{first, second});
  });
}

// C[r] = A[r] * B[e]^T + beta * C[r]; rows after the last group become 0.
template <class Mma, class Scales, class C>
__global__ __launch_bounds__(kMmaThreads) void float8_rows_kernel(Float8Problem<C> p, Scales scales) {
  extern __shared__ __align__(128) unsigned char memory[];
  GroupTile tile{.group = 0, .row = std::int64_t{blockIdx.y} * kMmaTile, .end = p.rows};
  if (p.ends != nullptr) tile = find_group_tile<kMmaTile>(p.ends, p.groups, p.rows, blockIdx.y);
  if (tile.group < 0) return;
  const TileAt at{.row = tile.row,
                  .column = std::int64_t{blockIdx.x} * kMmaTile,
                  .end_row = tile.end,
                  .end_column = p.n,
                  .first_block = 0,
                  .group = tile.group};
  MmaSums total;
  if (tile.group < p.groups)
    multiply_scaled<Mma>(total, memory, pairs(p.a + at.row * p.k, p.k, at.end_row - at.row, p.k),
                         pairs(p.b + (at.group * p.n + at.column) * p.k, p.k, at.end_column - at.column, p.k), scales,
                         at);
  store_tile<true>(total, p.c, at, p.ldc, p.beta);
}

// C[e] = A_e^T * B_e + beta * C[e] of columnwise operands: [rows,K], [n,K].
template <class Scales, class C>
__global__ __launch_bounds__(kMmaThreads) void float8_wgrad_kernel(Float8Problem<C> p, Scales scales) {
  extern __shared__ __align__(128) unsigned char memory[];
  const int group = static_cast<int>(blockIdx.z);
  const std::int64_t begin = group > 0 ? p.ends[group - 1] : 0, depth = p.ends[group] - begin;
  const TileAt at{.row = std::int64_t{blockIdx.y} * kMmaTile,
                  .column = std::int64_t{blockIdx.x} * kMmaTile,
                  .end_row = p.rows,
                  .end_column = p.n,
                  .first_block = begin / kFloat8MmaDepth,
                  .group = group};
  MmaSums total;
  multiply_scaled<Float8Mma<E4m3Codes, E4m3Codes>>(
      total, memory, pairs(p.a + at.row * p.k + begin, p.k, at.end_row - at.row, depth),
      pairs(p.b + at.column * p.k + begin, p.k, at.end_column - at.column, depth), scales, at);
  store_tile<false>(total, p.c + group * p.rows * p.ldc, at, p.ldc, p.beta);
}

unsigned tiles(std::int64_t n) {
  return static_cast<unsigned>((n + kMmaTile - 1) / kMmaTile);
}

const std::uint8_t* bytes_of(const Tensor& codes) {
  return static_cast<const std::uint8_t*>(codes.raw_data());
}

template <class Mma, class Scales, class C>
void launch_rows(std::string_view op, const OpLaunch& launch, const Float8Problem<C>& p, const Scales& scales) {
  const std::int64_t rows = p.ends != nullptr ? max_group_tiles(p.rows, p.groups + 1, kMmaTile) : tiles(p.rows);
  QUENCH_CHECK_AS(ErrorCode::unsupported, rows <= kMaxGridRows, "{}: {} rows in tiles of {} are too many", op, p.rows,
                  kMmaTile);
  launch(float8_rows_kernel<Mma, Scales, C>, dim3(tiles(p.n), static_cast<unsigned>(rows)), kMmaThreads,
         kMmaSharedBytes, p, scales);
}

template <class Scales, class C>
void launch_wgrad(std::string_view op, const OpLaunch& launch, const Float8Problem<C>& p, const Scales& scales) {
  QUENCH_CHECK_AS(ErrorCode::unsupported, p.groups <= kMaxGridRows && tiles(p.rows) <= kMaxGridRows,
                  "{}: {} groups of {} rows are too many", op, p.groups, p.rows);
  launch(float8_wgrad_kernel<Scales, C>, dim3(tiles(p.n), tiles(p.rows), static_cast<unsigned>(p.groups)), kMmaThreads,
         kMmaSharedBytes, p, scales);
}

template <class C>
Float8Problem<C> rows_problem(const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& ends) {
  return {.a = bytes_of(a),
          .b = bytes_of(b),
          .c = c.data<C>(),
          .ends = ends.data<std::int32_t>(),
          .groups = static_cast<int>(ends.size(0)),
          .rows = a.size(0),
          .n = c.size(1),
          .k = a.size(1),
          .ldc = c.size(1),
          .beta = 0.0f};
}
template <class C>
Float8Problem<C> wgrad_problem(const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& ends, float beta) {
  return {.a = bytes_of(a),
          .b = bytes_of(b),
          .c = c.data<C>(),
          .ends = ends.data<std::int32_t>(),
          .groups = static_cast<int>(c.size(0)),
          .rows = c.size(1),
          .n = c.size(2),
          .k = a.size(1),
          .ldc = c.size(2),
          .beta = beta};
}

// Calls body.template operator()<Mma>(); both are never e5m2.
template <class Body>
void with_float8_mma(const ScaledGemmArgs& args, const Body& body) {
  if (args.a.format().element == ElementFormat::e5m2)
    body.template operator()<Float8Mma<E5m2Codes, E4m3Codes>>();
  else if (args.b.format().element == ElementFormat::e5m2)
    body.template operator()<Float8Mma<E4m3Codes, E5m2Codes>>();
  else
    body.template operator()<Float8Mma<E4m3Codes, E4m3Codes>>();
}

}  // namespace

void scaled_gemm_sm80(const OpLaunch& launch, const ScaledGemmArgs& args) {
  const auto step = [](const QuantTensor& t) { return t.format().granularity == Granularity::row ? 1 : 0; };
  if (args.c.numel() == 0) return;
  const RowwiseScales scales{.rows = args.a.scales().data<float>(),
                             .columns = args.b.scales().data<float>(),
                             .row_step = step(args.a),
                             .column_step = step(args.b),
                             .group_rows = 0,
                             .group_columns = 0};
  dispatch<float, bfloat16>(args.c.dtype(), "scaled_gemm", [&]<class C>() {
    const Float8Problem<C> problem{.a = bytes_of(args.a.payload()),
                                   .b = bytes_of(args.b.payload()),
                                   .c = args.c.data<C>(),
                                   .ends = nullptr,
                                   .groups = 1,
                                   .rows = args.c.size(0),
                                   .n = args.c.size(1),
                                   .k = args.a.shape()[1],
                                   .ldc = args.c.size(0) > 1 ? args.c.stride(0) : args.c.size(1),
                                   .beta = args.beta};
    if (args.a.format().element == ElementFormat::int8)
      return launch_rows<Int8Mma>("scaled_gemm", launch, problem, Int8Scales{scales});
    with_float8_mma(args, [&]<class Mma>() { launch_rows<Mma>("scaled_gemm", launch, problem, scales); });
  });
}

void grouped_float8_gemm_sm80(const OpLaunch& launch, const GroupedFloat8GemmArgs& args) {
  if (args.c.numel() == 0) return;
  const RowwiseScales scales{.rows = args.a.scales().data<float>(),
                             .columns = args.b.scales().data<float>(),
                             .row_step = 1,
                             .column_step = 1,
                             .group_rows = 0,
                             .group_columns = args.c.size(1)};
  dispatch<float, bfloat16>(args.c.dtype(), "grouped_float8_gemm", [&]<class C>() {
    launch_rows<Float8Mma<E4m3Codes, E4m3Codes>>(
        "grouped_float8_gemm", launch, rows_problem<C>(args.a.payload(), args.b.payload(), args.c, args.ends), scales);
  });
}

void grouped_float8_wgrad_sm80(const OpLaunch& launch, const GroupedFloat8WgradArgs& args) {
  if (args.c.numel() == 0) return;
  const RowwiseScales scales{.rows = args.a.scales.data<float>(),
                             .columns = args.b.scales.data<float>(),
                             .row_step = 1,
                             .column_step = 1,
                             .group_rows = args.c.size(1),
                             .group_columns = args.c.size(2)};
  dispatch<float, bfloat16>(args.c.dtype(), "grouped_float8_wgrad", [&]<class C>() {
    launch_wgrad("grouped_float8_wgrad", launch,
                 wgrad_problem<C>(args.a.codes, args.b.codes, args.c, args.ends, args.beta), scales);
  });
}

void block_float8_gemm_sm80(const OpLaunch& launch, const BlockFloat8GemmArgs& args) {
  if (args.c.numel() == 0) return;
  const BlockwiseScales<false> scales{.rows = args.a.scales.data<float>(),
                                      .columns = args.b.scales.data<float>(),
                                      .row_count = args.a.codes.size(0),
                                      .column_count = 0,
                                      .column_blocks = args.b.scales.size(1),
                                      .blocks = args.b.scales.size(2)};
  dispatch<float, bfloat16>(args.c.dtype(), "block_float8_gemm", [&]<class C>() {
    launch_rows<Float8Mma<E4m3Codes, E4m3Codes>>(
        "block_float8_gemm", launch, rows_problem<C>(args.a.codes, args.b.codes, args.c, args.ends), scales);
  });
}

void block_float8_wgrad_sm80(const OpLaunch& launch, const BlockFloat8WgradArgs& args) {
  if (args.c.numel() == 0) return;
  const BlockwiseScales<true> scales{.rows = args.a.scales.data<float>(),
                                     .columns = args.b.scales.data<float>(),
                                     .row_count = args.a.codes.size(0),
                                     .column_count = args.b.codes.size(0),
                                     .column_blocks = 0,
                                     .blocks = args.a.scales.size(0)};
  dispatch<float, bfloat16>(args.c.dtype(), "block_float8_wgrad", [&]<class C>() {
    launch_wgrad("block_float8_wgrad", launch,
                 wgrad_problem<C>(args.a.codes, args.b.codes, args.c, args.ends, args.beta), scales);
  });
}

}  // namespace quench::cuda
