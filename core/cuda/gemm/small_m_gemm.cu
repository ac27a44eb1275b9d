// Small-M dequantizing GEMM on tensor cores. Quantized values, and x times a power of two (staged_rows.cuh), are exact
// in bf16 or f16. A tile is 16 weight rows, by one warp or several (split-K); rows of x are the N = 8 columns, mostly
// idle. Dequantization dominates: at most four instructions per two values, eight in f32 arithmetic.

#include "core/cuda/gemm/small_m_gemm.h"

#include "core/cuda/common/launch.h"
#include "core/cuda/gemm/small_m_epilogue.cuh"
#include "core/cuda/gemm/small_m_mainloop.cuh"
#include "core/device/read_only_weights.h"
#include "core/ops/normed_linear.h"

namespace quench::cuda {
namespace {

// With PDL and 8-bit codes, registers for a third CTA: one of the next kernel, which reads its weights ahead. 16 bits
// decode 6% slower with it.
template <bool kRowScales, int kBits>
constexpr int resident_blocks() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (kRowScales && kBits == 8) return kSmallMBlocksPerSm + 1;
#endif
  return kSmallMBlocksPerSm;
}

// kNormed: RMSNorm of x. kRowScales: WeightLoader; scales are applied to finished sums.
template <class Codes, bool kNormed, bool kRowScales>
__global__ __launch_bounds__(kSmallMThreads, resident_blocks<kRowScales, Codes::kBits>()) void small_m_gemm_kernel(
    const __grid_constant__ SmallMParams p) {
  extern __shared__ uint4 staged[];
  __shared__ SplitKReduction split_k;
  __shared__ RowScales row_scales;
  pdl_launch_dependents();
  if constexpr (kNormed)  // before the weight loads saturate memory
    for (int unit = static_cast<int>(threadIdx.x) * 8; unit * 8 < p.w.columns; unit += kSmallMThreads * 8)
      prefetch_l2(p.in.gain + unit * 8);
  SmallMTileScheduler work(p);
  WeightLoader<Codes, kRowScales> loader(p, work.tile);
  loader.prologue(work);
  const int units = static_cast<int>(p.w.columns / 8);
  if constexpr (kNormed)
    stage_normed_row<Codes, kUnitsPerLane<Codes>, kSmallMThreads>(p.in, units, staged, row_scales);
  else
    stage_rows<Codes, kUnitsPerLane<Codes>, kSmallMThreads>(p.in, units, staged, row_scales);
  __syncthreads();

  const StagedRow<Codes> x(staged, p);
  const SmallMEpilogue<typename Codes::Pair> epilogue{p, row_scales};
  float sums[4] = {};
  while (true) {
    const bool last = work.is_last(p);
    small_m_mainloop(sums, loader, x, work, last);
    if (p.split_k > 1) break;
    epilogue.store_tile(work.tile, sums);
    if (last) return;
    work.tile += work.tile_step;
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = 0;
    if (work.overlaps_tiles) continue;
    loader.set_tile(work.tile);
    loader.load_first(work);
  }
  split_k.reduce_and_store(sums, work, epilogue);
}

// 0: groups are not whole K tiles.
template <class Codes>
int k_tiles_per_group(const PackedMatrix& m) {
  if (m.columns() % kTileK<Codes> != 0) return 0;
  if (m.groups() == 1) return static_cast<int>(m.columns() / kTileK<Codes>);
  return m.group_size() % kTileK<Codes> == 0 ? static_cast<int>(m.group_size() / kTileK<Codes>) : 0;
}

// Warps per output tile: the most that are resident together and have a K tile each.
int split_k_for(std::int64_t tiles, std::int64_t k_tiles, std::int64_t blocks) {
  int split_k = kSmallMWarps;
  while (split_k > 1 && (tiles * split_k > blocks * kSmallMWarps || split_k > k_tiles)) split_k /= 2;
  return split_k;
}

TileInput tile_input(const Tensor& x, const AddedNorm* norm) {
  TileInput in{.x = x.data<bfloat16>(), .rows = static_cast<int>(x.size(0))};
  if (norm != nullptr) {
    in.residual = norm->residual.data<bfloat16>();
    in.gain = norm->weight.data<bfloat16>();
    in.sum = norm->sum.data<bfloat16>();
    in.eps = norm->eps;
  }
  return in;
}

template <class Codes>
void launch_gemm(const Tensor& x, const PackedView& w, int k_tiles_per_group, const Tensor& y, const Tensor& bias,
                 std::optional<GatedActivation> gated, const OpLaunch& launch, const AddedNorm* norm) {
  const std::int64_t outputs = gated ? w.rows / 2 : w.rows, tile_outputs = gated ? kTileRows / 2 : kTileRows;
  const std::int64_t tiles = (outputs + tile_outputs - 1) / tile_outputs;
  const std::int64_t most_blocks = std::int64_t{sm_count(launch.device())} * kSmallMBlocksPerSm;
  const int split_k = split_k_for(tiles, w.row_bytes / kKTileBytes, most_blocks);
  const std::int64_t block_tiles = kSmallMWarps / split_k;
  const std::int64_t blocks = std::min(most_blocks, (tiles + block_tiles - 1) / block_tiles);
  const SmallMParams params{.in = tile_input(x, norm),
                            .w = w,
                            .tiles = static_cast<int>(tiles),
                            .group_of = GroupIndex(k_tiles_per_group),
                            .split_k = split_k,
                            .out = {y.raw_data(), y.stride(0), y.dtype() == DType::f32},
                            .bias = bias.defined() ? bias.data<bfloat16>() : nullptr,
                            .gated = gated.has_value(),
                            .activation = gated.value_or(GatedActivation::silu),
                            .constant_weights = Codes::kBits == 16 ? ReadOnlyWeightsScope::of_values(w.codes)
                                                                   : ReadOnlyWeightsScope::of_packed()};
  const auto run = [&]<bool kRowScales>() {
    launch.early(
        x.size(0),
        norm != nullptr ? small_m_gemm_kernel<Codes, true, kRowScales> : small_m_gemm_kernel<Codes, false, kRowScales>,
        static_cast<unsigned>(blocks), kSmallMThreads,
        static_cast<std::size_t>(staged_bytes(x.size(0), w.columns / 8, norm != nullptr)), params);
  };
  if constexpr (Codes::kBits == 16) return run.template operator()<true>();
  if constexpr (Codes::kBits == 8)
    if (w.groups == 1 && w.offsets == nullptr) return run.template operator()<true>();
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
         for_codes(m.codes().dtype(), [&]<class Codes>() { return k_tiles_per_group<Codes>(m) > 0; });
}

void small_m_gemm(const PackedLinearArgs& args, std::optional<GatedActivation> gated, const AddedNorm* norm) {
  const PackedMatrix& m = args.weight;
  const OpLaunch launch(gated ? "gated_packed_linear" : "packed_linear",
                        {&args.x, &m.codes(), &m.scales(), &m.offsets(), &args.y, &args.bias});
  for_codes(m.codes().dtype(), [&]<class Codes>() {
    launch_gemm<Codes>(args.x, PackedView(m), k_tiles_per_group<Codes>(m), args.y, args.bias, gated, launch, norm);
  });
}

bool small_m_gemm_values(const Tensor& x, const Tensor& weight, const Tensor& y, const Tensor& bias,
                         std::optional<GatedActivation> gated, const OpLaunch& launch, const AddedNorm* norm) {
  if (!fits(x) || !weight.is_contiguous() || weight.size(1) % kTileK<Values16> != 0 ||
      reinterpret_cast<std::uintptr_t>(weight.raw_data()) % 16 != 0)
    return false;
  launch_gemm<Values16>(x, PackedView(weight), 1, y, bias, gated, launch, norm);
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
