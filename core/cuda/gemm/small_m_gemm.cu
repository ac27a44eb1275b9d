// Small-M dequantizing GEMM on tensor cores (mma.m16n8k16, f32 accumulators). Quantized values, and x times a power of
// two (staged_rows.cuh), are exact in bf16 or f16. A tile is 16 weight rows, by one warp or several (split-K); rows of
// x are the N = 8 columns, mostly idle. Dequantization dominates: at most four instructions per two values, eight in
// f32 arithmetic.

#include "core/cuda/gemm/small_m_gemm.h"

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pdl.cuh"
#include "core/cuda/common/swiglu_math.cuh"
#include "core/cuda/common/vector.cuh"
#include "core/cuda/gemm/packed_codes.cuh"
#include "core/cuda/gemm/packed_view.cuh"
#include "core/cuda/gemm/staged_rows.cuh"
#include "core/device/read_only_weights.h"
#include "core/ops/normed_linear.h"

namespace quench::cuda {
namespace {

constexpr int kSmallMThreads = 256, kTileWarps = kSmallMThreads / 32;
constexpr int kBlocksPerMultiprocessor = 2;  // CTAs per SM; the next kernel's start while the last ones drain
// With PDL and 8-bit codes, registers for a third CTA: one of the next kernel, which reads its weights ahead. 16 bits
// decode 6% slower with it.
template <bool kRowScales, int kBits>
constexpr int resident_blocks() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (kRowScales && kBits == 8) return kBlocksPerMultiprocessor + 1;
#endif
  return kBlocksPerMultiprocessor;
}
constexpr int kInFlight = 4;     // chunks per warp and row
constexpr int kAhead = 4;        // further chunks prefetched to L2
constexpr int kTileRows = 16;    // weight rows
constexpr int kPieceBytes = 64;  // per chunk: 16 for each of four lanes

template <class Codes>
inline constexpr int kPieceCodes = kPieceBytes * 8 / Codes::kBits;
// Per lane and chunk.
template <class Codes>
inline constexpr int kUnits = kPieceCodes<Codes> / 32;

// a [16,16] and b [16,8] in Pair, c [16,8] in f32. Fragments, with g = lane / 4 and t = lane % 4: a at (g, 2t), (g + 8,
// 2t), (g, 2t + 8), (g + 8, 2t + 8); b at (2t, g), (2t + 8, g); c at (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t +
// 1). The K order is free if equal in a and b.
template <class Pair>
__device__ void multiply_tiles(float (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2, std::uint32_t a3,
                               std::uint32_t b0, std::uint32_t b1) {
  if constexpr (std::is_same_v<Pair, bfloat16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Address and length: multiples of 16.
__device__ void fetch_run_to_cache(const void* address, int bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(address), "r"(bytes));
#endif
}

// Unquantized weight.
struct Values16 {
  using Pair = bfloat16;
  static constexpr int kBits = 16;
};

// Four pairs, in the order of the staged x.
template <class Codes>
__device__ void decode_unit(const uint4& codes, int unit, std::uint32_t (&pairs)[4]) {
  const std::uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
  if constexpr (Codes::kBits == 16) {
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = words[i];
  } else if constexpr (Codes::kBits == 4) {
    Codes::decode_pairs(words[unit], pairs);
  } else {
    Codes::decode_pairs(words[2 * unit], *reinterpret_cast<std::uint32_t(*)[2]>(&pairs[0]));
    Codes::decode_pairs(words[2 * unit + 1], *reinterpret_cast<std::uint32_t(*)[2]>(&pairs[2]));
  }
}

// Gated: 8 gate and 8 up rows.
struct TileRows {
  int first, half, last;  // half: 0 without gate
  __device__ TileRows(int tile, std::int64_t rows, bool gated)
      : first(tile * (gated ? kTileRows / 2 : kTileRows)),
        half(gated ? static_cast<int>(rows / 2) : 0),
        last((gated ? half : static_cast<int>(rows)) - 1) {}
  // Past the last row: clamped.
  [[nodiscard]] __device__ int operator[](int r) const {
    return half == 0 ? min(first + r, last) : min(first + r % 8, last) + r / 8 * half;
  }
};

// `split` warps (divisor of kTileWarps) share a tile; unsplit warps may take several. kRowScales: no scales
// (16 bits), or one per row without offsets (8 bits), applied to finished sums. `constant`: read_only_weights.h.
template <class Codes, bool kNormed, bool kRowScales>
__global__ __launch_bounds__(kSmallMThreads, resident_blocks<kRowScales, Codes::kBits>()) void packed_tiles_kernel(
    TileInput in, PackedView w, int tiles, GroupIndex group_of, int split, PackedOutput out, const bfloat16* bias,
    bool gated, GatedActivation activation, bool constant) {
  extern __shared__ uint4 staged[];
  using Pair = typename Codes::Pair;
  __shared__ float parts[kTileWarps][kTileRows][kPackedRows];
  __shared__ RowScales row_scales;
  pdl_launch_dependents();
  if constexpr (kNormed)  // before the weight loads saturate memory
    for (int unit = static_cast<int>(threadIdx.x) * 8; unit * 8 < w.columns; unit += kSmallMThreads * 8)
      prefetch_l2(in.gain + unit * 8);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4, t = lane % 4, block_tiles = kTileWarps / split, rows = in.rows;
  const int step = static_cast<int>(gridDim.x) * block_tiles, units = static_cast<int>(w.columns / 8);
  const int pieces = static_cast<int>(w.row_bytes) / kPieceBytes, share = (pieces + split - 1) / split;
  const int begin = warp % split * share, end = min(begin + share, pieces);
  // Next tile's first chunks during the last MMAs.
  const bool runs_on = share % kInFlight == 0;
  int tile_number = static_cast<int>(blockIdx.x) * block_tiles + warp / split;
  const uint4* codes[2];  // next tile
  int groups[2];
  std::uint32_t next_scales[2] = {};  // raw bits, with kRowScales
  const auto enter_tile = [&](int number) {
    const TileRows tile(number, w.rows, gated);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const std::int64_t row = tile[g + 8 * h];
      codes[h] = reinterpret_cast<const uint4*>(w.codes + row * w.row_bytes) + t;
      groups[h] = static_cast<int>(row * w.groups);
    }
  };
  const auto load_row_scales = [&] {
    if constexpr (kRowScales && Codes::kBits < 16)
#pragma unroll
      for (int h = 0; h < 2; ++h) next_scales[h] = w.scale_bits(groups[h]);
  };
  enter_tile(tile_number);

  uint4 words[kInFlight][2];
  std::uint32_t scales[kInFlight][2];  // raw bits
  const auto load = [&](int u, int piece) {
    if (piece >= end) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      words[u][h] = load_weights(codes[h] + piece * 4);
      if constexpr (!kRowScales) scales[u][h] = w.scale_bits(groups[h] + group_of(piece));
    }
  };
  if (!constant) {
    if (t % 2 == 0)
      for (int piece = begin; piece < end; ++piece)
#pragma unroll
        for (int h = 0; h < 2; ++h) prefetch_l2(codes[h] + piece * 4);
    pdl_wait();
  }
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) load(u, begin + u);
  load_row_scales();
  if (constant) {
    const int next = begin + kInFlight, count = min(end - next, kAhead);
    if (count > 0 && lane < kTileRows) {
      const TileRows tile(tile_number, w.rows, gated);
      const std::int64_t row = tile[lane];
      fetch_run_to_cache(w.codes + row * w.row_bytes + next * kPieceBytes, count * kPieceBytes);
      if (!kRowScales && w.groups > 1) prefetch_l2(w.scale_address(row * w.groups + group_of(next)));
    }
    pdl_wait();
  }
  if constexpr (kNormed)
    stage_normed_row<Codes, kUnits<Codes>, kSmallMThreads>(in, units, staged, row_scales);
  else
    stage_rows<Codes, kUnits<Codes>, kSmallMThreads>(in, units, staged, row_scales);
  __syncthreads();

  const auto write = [&](int row, const TileRows& tile, int r, float value, float up) {
    float scale = 1.0f;
    if constexpr (std::is_same_v<Pair, float16>) scale = row_scales[row];
    const auto biased = [&](float sum, int tile_row) {
      return sum * scale + (bias != nullptr ? to_float(bias[tile[tile_row]]) : 0.0f);
    };
    Vector<float, 1> result;
    result[0] = biased(value, r);
    if (gated) {  // unfused rounding: bit-identical to GEMM then swiglu()
      Vector<float, 1> of_up;
      of_up[0] = rounded<bfloat16>(biased(up, r + kTileRows / 2));
      result[0] = rounded<bfloat16>(result[0]);
      result = swiglu_of(activation, result, of_up);
    }
    out.write<bfloat16>(row, tile.first + r, result[0]);
  };

  const uint4* mine = staged + min(g, rows - 1) * (units + kStagedPad) + t;
  float sums[4] = {};
  while (true) {
    const bool last = split > 1 || tile_number + step >= tiles;
    const int offset_groups[2] = {groups[0], groups[1]};
    const std::uint32_t tile_scales[2] = {next_scales[0], next_scales[1]};
    for (int base = begin; base < end; base += kInFlight) {
      const bool turns = runs_on && !last && base + kInFlight == end;
      if (turns) {
        enter_tile(tile_number + step);
        load_row_scales();
      }
      float c[2][4] = {};
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        const int piece = base + u;
        if (piece >= end) break;
#pragma unroll
        for (int unit = 0; unit < kUnits<Codes>; ++unit) {
          const uint4 b = mine[(piece * kUnits<Codes> + unit) * 4];
          std::uint32_t a[2][4];
          decode_unit<Codes>(words[u][0], unit, a[0]);
          decode_unit<Codes>(words[u][1], unit, a[1]);
          multiply_tiles<Pair>(c[0], a[0][0], a[1][0], a[0][1], a[1][1], b.x, b.y);
          multiply_tiles<Pair>(c[1], a[0][2], a[1][2], a[0][3], a[1][3], b.z, b.w);
        }
        float factors[2];  // before load() replaces them
        if constexpr (!kRowScales)
#pragma unroll
          for (int h = 0; h < 2; ++h) factors[h] = w.scale_of(scales[u][h]);
        load(u, turns ? begin + u : piece + kInFlight);
        if constexpr (!kRowScales) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            sums[i] = fmaf(factors[i / 2], c[0][i] + c[1][i], sums[i]);
            c[0][i] = c[1][i] = 0;
          }
          if (w.offsets != nullptr) {  // offset times the sum of x, an MMA with ones
            constexpr std::uint32_t kOnes = std::is_same_v<Pair, bfloat16> ? 0x3F803F80 : 0x3C003C00;
            float totals[4] = {};
#pragma unroll
            for (int unit = 0; unit < kUnits<Codes>; ++unit) {
              const uint4 b = mine[(piece * kUnits<Codes> + unit) * 4];
              multiply_tiles<Pair>(totals, kOnes, kOnes, kOnes, kOnes, b.x, b.y);
              multiply_tiles<Pair>(totals, kOnes, kOnes, kOnes, kOnes, b.z, b.w);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i)
              sums[i] = fmaf(w.offsets[offset_groups[i / 2] + group_of(piece)], totals[i], sums[i]);
          }
        }
      }
      if constexpr (kRowScales)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[i] += c[0][i] + c[1][i];
    }
    if constexpr (kRowScales && Codes::kBits < 16)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[i] *= w.scale_of(tile_scales[i / 2]);
    if (split > 1) break;
    const TileRows tile(tile_number, w.rows, gated);
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      const int row = 2 * t + column;
      if (row >= rows || tile_number >= tiles) continue;
      if (tile.first + g <= tile.last) write(row, tile, g, sums[column], sums[2 + column]);
      if (!gated && tile.first + g + 8 <= tile.last) write(row, tile, g + 8, sums[2 + column], 0);
    }
    if (last) return;
    tile_number += step;
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = 0;
    if (runs_on) continue;
    enter_tile(tile_number);
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) load(u, begin + u);
    load_row_scales();
  }

#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (2 * t + i % 2 < rows) parts[warp][g + i / 2 * 8][2 * t + i % 2] = sums[i];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < block_tiles * kTileRows * rows; i += kSmallMThreads) {
    const int r = i % kTileRows, local = i / kTileRows % block_tiles, row = i / (kTileRows * block_tiles);
    const TileRows tile(static_cast<int>(blockIdx.x) * block_tiles + local, w.rows, gated);
    if (tile.first + r > tile.last || (gated && r >= kTileRows / 2)) continue;
    const auto total = [&](int tile_row) {
      float sum = 0;
      for (int part = 0; part < split; ++part) sum += parts[local * split + part][tile_row][row];
      return sum;
    };
    write(row, tile, r, total(r), gated ? total(r + kTileRows / 2) : 0.0f);
  }
}

// 0: groups are not whole chunks.
template <class Codes>
int pieces_per_group(const PackedMatrix& m) {
  if (m.columns() % kPieceCodes<Codes> != 0) return 0;
  if (m.groups() == 1) return static_cast<int>(m.columns() / kPieceCodes<Codes>);
  return m.group_size() % kPieceCodes<Codes> == 0 ? static_cast<int>(m.group_size() / kPieceCodes<Codes>) : 0;
}

template <class Codes>
void run_tiles(const Tensor& x, const PackedView& view, int pieces_per_group, const Tensor& y, const Tensor& bias,
               std::optional<GatedActivation> gated, const OpLaunch& launch, const AddedNorm* norm) {
  const std::int64_t rows = x.size(0), pieces = view.row_bytes / kPieceBytes;
  const std::int64_t outputs = gated ? view.rows / 2 : view.rows, tile_outputs = gated ? kTileRows / 2 : kTileRows;
  const std::int64_t tiles = (outputs + tile_outputs - 1) / tile_outputs;
  // Split-K while there are chunks for all warps.
  const std::int64_t most = std::int64_t{sm_count(launch.device())} * kBlocksPerMultiprocessor;
  int split = kTileWarps;
  while (split > 1 && (tiles * split > most * kTileWarps || split > pieces)) split /= 2;
  const std::int64_t block_tiles = kTileWarps / split, blocks = std::min(most, (tiles + block_tiles - 1) / block_tiles);
  TileInput in{.x = x.data<bfloat16>(), .rows = static_cast<int>(rows)};
  if (norm != nullptr) {
    in.residual = norm->residual.data<bfloat16>();
    in.gain = norm->weight.data<bfloat16>();
    in.sum = norm->sum.data<bfloat16>();
    in.eps = norm->eps;
  }
  const auto run = [&]<bool kRowScales>() {
    launch.early(
        rows,
        norm != nullptr ? packed_tiles_kernel<Codes, true, kRowScales> : packed_tiles_kernel<Codes, false, kRowScales>,
        static_cast<unsigned>(blocks), kSmallMThreads,
        static_cast<std::size_t>(staged_bytes(rows, view.columns / 8, norm != nullptr)), in, view,
        static_cast<int>(tiles), GroupIndex(pieces_per_group), split,
        PackedOutput{y.raw_data(), y.stride(0), y.dtype() == DType::f32},
        bias.defined() ? bias.data<bfloat16>() : nullptr, gated.has_value(), gated.value_or(GatedActivation::silu),
        Codes::kBits == 16 ? ReadOnlyWeightsScope::of_values(view.codes) : ReadOnlyWeightsScope::of_packed());
  };
  if constexpr (Codes::kBits == 16) return run.template operator()<true>();
  if constexpr (Codes::kBits == 8)
    if (view.groups == 1 && view.offsets == nullptr) return run.template operator()<true>();
  if constexpr (Codes::kBits < 16) run.template operator()<false>();
}

bool fits(const Tensor& x) {
  constexpr std::int64_t kMostBytes = std::int64_t{96} << 10;  // x in shared memory
  return x.dtype() == DType::bf16 && x.is_contiguous() && x.size(0) <= kPackedRows &&
         reinterpret_cast<std::uintptr_t>(x.raw_data()) % 16 == 0 && x.size(0) * x.size(1) * 2 <= kMostBytes;
}

template <class Body>
auto for_codes(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::i4: return body.template operator()<Int4>();
    case DType::i8: return body.template operator()<Int8>();
    case DType::f4_e2m1: return body.template operator()<Float4>();
    default: return body.template operator()<Float8>();
  }
}

}  // namespace

bool small_m_gemm_supports(const Tensor& x, const PackedMatrix& m) {
  return fits(x) && reinterpret_cast<std::uintptr_t>(m.codes().raw_data()) % 16 == 0 &&
         reinterpret_cast<std::uintptr_t>(m.scales().raw_data()) % byte_size(m.scales().dtype()) == 0 &&
         for_codes(m.codes().dtype(), [&]<class Codes>() { return pieces_per_group<Codes>(m) > 0; });
}

void small_m_gemm(const PackedLinearArgs& args, std::optional<GatedActivation> gated, const AddedNorm* norm) {
  const PackedMatrix& m = args.weight;
  const OpLaunch launch(gated ? "gated_packed_linear" : "packed_linear",
                        {&args.x, &m.codes(), &m.scales(), &m.offsets(), &args.y, &args.bias});
  for_codes(m.codes().dtype(), [&]<class Codes>() {
    run_tiles<Codes>(args.x, PackedView(m), pieces_per_group<Codes>(m), args.y, args.bias, gated, launch, norm);
  });
}

bool small_m_gemm_values(const Tensor& x, const Tensor& weight, const Tensor& y, const Tensor& bias,
                         std::optional<GatedActivation> gated, const OpLaunch& launch, const AddedNorm* norm) {
  if (!fits(x) || !weight.is_contiguous() || weight.size(1) % kPieceCodes<Values16> != 0 ||
      reinterpret_cast<std::uintptr_t>(weight.raw_data()) % 16 != 0)
    return false;
  run_tiles<Values16>(x, PackedView(weight), 1, y, bias, gated, launch, norm);
  return true;
}

namespace {

bool norm_fits(const NormedLinearArgs& args) {
  const auto aligned = [](const Tensor& t) { return reinterpret_cast<std::uintptr_t>(t.raw_data()) % 16 == 0; };
  return args.x.dtype() == DType::bf16 && args.x.size(0) == 1 && args.x.size(1) % 8 == 0 &&
         args.x.size(1) / 8 <= kMostNormedUnits && aligned(args.norm.residual) && aligned(args.norm.weight) &&
         aligned(args.norm.sum);
}

void normed_linear_cuda(const NormedLinearArgs& args) {
  if (norm_fits(args)) {
    if (args.packed.defined() && small_m_gemm_supports(args.x, args.packed))
      return small_m_gemm({.x = args.x, .weight = args.packed, .y = args.y, .bias = args.bias}, args.gated, &args.norm);
    const OpLaunch launch("normed_linear", {&args.x, &args.norm.residual, &args.values, &args.y, &args.bias});
    if (args.values.defined() &&
        small_m_gemm_values(args.x, args.values, args.y, args.bias, args.gated, launch, &args.norm))
      return;
  }
  normed_linear_apart(args);
}

QUENCH_CUDA_KERNEL(normed_linear_slot, normed_linear_cuda);

}  // namespace

}  // namespace quench::cuda
