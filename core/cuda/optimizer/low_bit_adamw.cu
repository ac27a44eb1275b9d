#include "core/ops/optimizer/low_bit_adamw.h"

#include <cuda_fp8.h>

#include <algorithm>

#include "core/cuda/common/launch.h"
#include "core/cuda/common/tensor_chunks.cuh"
#include "core/cuda/optimizer/adamw_math.cuh"
#include "core/cuda/optimizer/elements.cuh"
#include "core/number/float8.h"
#include "core/ops/quantize/quantize.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr int kBlocks = 2;         // per SM
constexpr int kBlocksPerWarp = 8;  // consecutive

struct MomentPointers {
  std::uint8_t* codes;
  float* scales;
};

struct Entry {
  Elements param, grad, weights;  // weights: master, or param
  MomentPointers exp_avg, exp_avg_sq;
  std::int64_t blocks;
  std::uint64_t philox_key;
  std::uint64_t element_offset;
  float decay;  // -lr wd
  bool has_master, stochastic;
  bool wide;  // vector-aligned
};
constexpr int kCapacity = 240;
using Table = ChunkTable<Entry, kCapacity>;

struct Coefficients {
  AdamWCoefficients arithmetic;
  std::uint64_t step;
  const float* grad_scale;  // optional
};

template <MomentFormat kFormat>
struct Format {
  static constexpr bool kHasTable = kFormat != MomentFormat::fp8;
  static constexpr int kEntries = kFormat == MomentFormat::int4 ? 16 : kFormat == MomentFormat::int8 ? 256 : 1;
  static constexpr int kBlock = static_cast<int>(moment_block(kFormat));
  static constexpr int kEach = kBlock / 32;  // per lane
};

template <int kEntries>
struct SmallTable {
  float values[kEntries];
  float thresholds[kEntries];
};
// Tables of both moments, as kernel parameters.
template <int kEntries>
struct Tables {
  SmallTable<kEntries> first, second;
};
static_assert(sizeof(Table) + sizeof(Coefficients) + sizeof(Tables<256>) <= kMaxParameterBytes);

// Shared-memory codebook, in kCopies copies against bank conflicts: 32, one per bank, or 16. Codes are found by key:
// binary search would conflict at each of eight steps.
template <MomentFormat kFormat, bool kSigned, int kCopies>
struct Codebook {
  static constexpr int kEntries = Format<kFormat>::kEntries;
  float values[kEntries * kCopies];
  static constexpr int kNegativeKeys = kSigned ? MomentKeys::kCount : 0;
  std::uint32_t keys[kNegativeKeys + MomentKeys::kCount];
  float thresholds[kEntries];

  // CTA collective; synchronizes.
  __device__ void fill(const SmallTable<kEntries>& from) {
    const int thread = static_cast<int>(threadIdx.x);
    for (int i = thread; i < kEntries; i += kThreads) thresholds[i] = from.thresholds[i];
    for (int i = thread; i < kEntries * kCopies; i += kThreads) values[i] = from.values[i / kCopies];
    __syncthreads();
    for (int i = thread; i < kNegativeKeys + MomentKeys::kCount; i += kThreads)
      keys[i] = MomentKeys::entry(thresholds, kEntries, i - kNegativeKeys);
    __syncthreads();
  }
  __device__ float value(std::uint32_t code) const { return values[code * kCopies + threadIdx.x % kCopies]; }
  // Normalized magnitude (at most 1) and sign.
  __device__ std::uint32_t code(float magnitude, bool negative) const {
    const std::int32_t place = MomentKeys::place(magnitude, negative);
    return MomentKeys::code(keys[kNegativeKeys + MomentKeys::key(place)], place);
  }
  // Any y, NaN included.
  __device__ std::uint32_t searched_code(float y) const {
    return static_cast<std::uint32_t>(search_moment(thresholds, kEntries, y));
  }
};

// No search: both moments share the replicated values.
template <bool kSigned, int kCopies>
struct Codebook<MomentFormat::fp8, kSigned, kCopies> {
  float values[256 * kCopies];

  __device__ void fill(const SmallTable<1>&) {
    for (int i = static_cast<int>(threadIdx.x); i < 256 * kCopies; i += kThreads)
      values[i] = E4m3::decode(static_cast<std::uint8_t>(i / kCopies));
    __syncthreads();
  }
  __device__ float value(std::uint32_t code) const { return values[code * kCopies + threadIdx.x % kCopies]; }
  __device__ std::uint32_t code(float magnitude, bool negative) const {
    return __nv_cvt_float_to_fp8(negative ? -magnitude : magnitude, __NV_SATFINITE, __NV_E4M3);
  }
  __device__ std::uint32_t searched_code(float y) const { return E4m3::encode(y); }
};

template <MomentFormat kFormat, int kCopies>
struct Codebooks {
  Codebook<kFormat, true, kCopies> of_first;
  Codebook<kFormat, false, kCopies> of_second;
  __device__ void fill(const Tables<Format<kFormat>::kEntries>& tables) {
    of_first.fill(tables.first);
    of_second.fill(tables.second);
  }
};

template <MomentFormat kFormat, bool kSigned, int kCopies>
struct Moment {
  static constexpr int kEach = Format<kFormat>::kEach;
  static constexpr int kBytes = kFormat == MomentFormat::int4 ? kEach / 2 : kEach;
  using Bytes = Vector<std::uint8_t, kBytes>;
  using Book = Codebook<kFormat, kSigned, kCopies>;

  // `place`: first code, a multiple of kBytes.
  __device__ static Vector<float, kEach> load(const MomentPointers& at, std::int64_t block, std::int64_t place,
                                              const Book& book) {
    const Bytes codes = *reinterpret_cast<const Bytes*>(at.codes + place);
    const float scale = at.scales[block];
    Vector<float, kEach> result;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      if constexpr (kFormat == MomentFormat::int4)
        result[j] = book.value(j % 2 == 0 ? codes[j / 2] >> 4 : codes[j / 2] & 15) * scale;
      else
        result[j] = book.value(codes[j]) * scale;
    }
    return result;
  }

  // `most`: lane's amax, NaN if an element is.
  __device__ static void store(const MomentPointers& at, std::int64_t block, std::int64_t place, const Book& book,
                               const Vector<float, kEach>& x, float most) {
    most = warp_max(most);
    const bool ordinary = most <= kLargestMost;
    if (!ordinary) [[unlikely]] {  // NaN does not affect the scale
      most = 0;
#pragma unroll
      for (int j = 0; j < kEach; ++j) most = fmaxf(most, fabsf(x[j]));
      most = warp_max(most);
    }
    const float scale = fmaxf(most, kLeastMomentMagnitude) * moment_scale_factor(kFormat);
    if (threadIdx.x % 32 == 0) at.scales[block] = scale;
    Bytes codes{};
    const auto put = [&](int j, std::uint32_t code) {
      if constexpr (kFormat == MomentFormat::int4)
        codes[j / 2] = static_cast<std::uint8_t>(j % 2 == 0 ? code << 4 : codes[j / 2] | code);
      else
        codes[j] = static_cast<std::uint8_t>(code);
    };
    if (ordinary) [[likely]] {
      // Division of fast_step_weight. An x too small for a representable remainder has code 0.
      float inverse;
      asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(scale));
      inverse = fmaf(fmaf(-scale, inverse, 1.0f), inverse, inverse);
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const float magnitude = fabsf(x[j]), quotient = magnitude * inverse;
        put(j, book.code(fmaf(fmaf(-scale, quotient, magnitude), inverse, quotient),
                         kSigned && static_cast<int>(__float_as_uint(x[j])) < 0));
      }
    } else {
#pragma unroll
      for (int j = 0; j < kEach; ++j) put(j, book.searched_code(x[j] / scale));
    }
    *reinterpret_cast<Bytes*>(at.codes + place) = codes;
  }

 private:
  static constexpr float kLargestMost = 0x1p100f;
  // Integer comparison; NaN is largest.
  __device__ static float warp_max(float magnitude) {
    return __uint_as_float(__reduce_max_sync(0xFFFFFFFFu, __float_as_uint(magnitude)));
  }
};

// NaN propagates.
__device__ inline float larger_magnitude(float most, float x) {
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(most), "f"(fabsf(x)));
  return most;
}

struct LargestMoments {
  float m = 0, v = 0;
};

// Lane's moments and weights. `weights`: source of p.
template <int kEach>
__device__ LargestMoments update_lane(const AdamWCoefficients& c, float decay, const Elements& weights, std::int64_t i,
                                      bool wide, const Vector<float, kEach>& g, Vector<float, kEach>& p,
                                      Vector<float, kEach>& m, Vector<float, kEach>& v) {
  LargestMoments most;
  float least_m = kLeastM, least_v = kLeastV;
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    update_moments(c, g[j], m[j], v[j]);
    p[j] = fast_step_weight(c, fmaf(decay, p[j], p[j]), m[j], v[j]);
    most = {larger_magnitude(most.m, m[j]), larger_magnitude(most.v, v[j])};
    least_m = fminf(least_m, fabsf(m[j]));
    least_v = fminf(least_v, v[j]);
  }
  // Test of UsualMoments, with amax for the sum.
  if (c.ordinary & (least_m >= kLeastM) & (least_v >= kLeastV) & (most.m <= 0x1p100f) & (most.v <= kLargestV))
      [[likely]]
    return most;
  bool ordinary = c.ordinary;
#pragma unroll
  for (int j = 0; j < kEach; ++j)  // NaN moments imply a NaN weight
    ordinary = ordinary & ordinary_moments(m[j], v[j]) & (p[j] == p[j]);
  if (ordinary) return most;
  p = weights.load<kEach>(i, wide);
#pragma unroll
  for (int j = 0; j < kEach; ++j) p[j] = step_weight(c, fmaf(decay, p[j], p[j]), m[j], v[j]);
  return most;
}

// One warp per quantization block: dequantizes, updates, requantizes. Bytes per element with bf16 params and gradients
// and 8-bit moments: 10; 18 with an f32 master.
template <MomentFormat kFormat, int kCopies, bool kPlain>
__global__ __launch_bounds__(kThreads, kBlocks) void low_bit_adamw_kernel(
    const __grid_constant__ Table table, const __grid_constant__ Coefficients c,
    const __grid_constant__ Tables<Format<kFormat>::kEntries> tables) {
  using F = Format<kFormat>;
  using First = Moment<kFormat, true, kCopies>;
  using Second = Moment<kFormat, false, kCopies>;
  extern __shared__ __align__(16) unsigned char shared[];
  auto& books = *reinterpret_cast<Codebooks<kFormat, kCopies>*>(shared);
  const float grad_scale = c.grad_scale != nullptr ? *c.grad_scale : 1.0f;
  if (!isfinite(grad_scale)) return;
  books.fill(tables);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  constexpr int kEach = F::kEach;
  for (int chunk = static_cast<int>(blockIdx.x); chunk < table.first_chunk[table.count];
       chunk += static_cast<int>(gridDim.x)) {
    const int index = table.entry_of(chunk);
    const Entry& e = table.entries[index];
    const bool wide = kPlain || e.wide;
    const Elements grad{e.grad.data, kPlain || e.grad.is_bf16}, weights{e.weights.data, kPlain || e.weights.is_bf16};
    const std::int64_t first = static_cast<std::int64_t>(chunk - table.first_chunk[index]) * (kWarps * kBlocksPerWarp);
    for (int k = 0; k < kBlocksPerWarp; ++k) {
      const std::int64_t block = first + k * kWarps + warp;
      if (block >= e.blocks) break;
      const std::int64_t i = block * F::kBlock + lane * kEach;
      const std::int64_t place = block * (32 * First::kBytes) + lane * First::kBytes;
      Vector<float, kEach> g = grad.load<kEach>(i, wide), p = weights.load<kEach>(i, wide);
      Vector<float, kEach> m = First::load(e.exp_avg, block, place, books.of_first);
      Vector<float, kEach> v = Second::load(e.exp_avg_sq, block, place, books.of_second);
#pragma unroll
      for (int j = 0; j < kEach; ++j) g[j] *= grad_scale;
      const LargestMoments most = update_lane(c.arithmetic, e.decay, weights, i, wide, g, p, m, v);
      First::store(e.exp_avg, block, place, books.of_first, m, most.m);
      Second::store(e.exp_avg_sq, block, place, books.of_second, v, most.v);
      const Elements param{e.param.data, kPlain || e.param.is_bf16};
      if (!kPlain && e.has_master) e.weights.store(i, p, wide);
      if (e.stochastic)
        param.store_stochastic(
            i, p, RandomBits<1, kEach>(e.philox_key, c.step, e.element_offset + static_cast<std::uint64_t>(i)),
            AdamWRounding::param, wide);
      else
        param.store(i, p, wide);
    }
  }
}

// bf16 params and gradients, no master, vector-aligned.
bool is_plain(const Entry& e) {
  return e.param.is_bf16 && e.grad.is_bf16 && !e.has_master && e.wide;
}

Coefficients coefficients(const AdamWArgs& args) {
  return {.arithmetic = adamw_coefficients(args),
          .step = static_cast<std::uint64_t>(args.step),
          .grad_scale = args.grad_scale.defined() ? args.grad_scale.data<float>() : nullptr};
}

Entry entry(const LowBitAdamWArgs& args, const LowBitAdamWTensor& t) {
  const auto moment = [](const MomentCodes& codes) {
    return MomentPointers{static_cast<std::uint8_t*>(codes.codes.raw_data()), codes.scales.data<float>()};
  };
  const bool has_master = t.master.defined();
  const Tensor& weights = has_master ? t.master : t.param;
  return {.param = Elements::of(t.param),
          .grad = Elements::of(t.grad),
          .weights = Elements::of(weights),
          .exp_avg = moment(t.exp_avg),
          .exp_avg_sq = moment(t.exp_avg_sq),
          .blocks = t.param.numel() / moment_block(args.format),
          .philox_key = philox_key(args.adamw.seed, t.random_stream),
          .element_offset = static_cast<std::uint64_t>(t.element_offset),
          .decay = static_cast<float>(-args.adamw.lr * t.weight_decay),
          .has_master = has_master,
          .stochastic = args.adamw.stochastic_rounding && t.param.dtype() == DType::bf16 && !has_master,
          .wide = are_wide({&t.param, &t.grad, &weights})};
}

template <MomentFormat kFormat>
Tables<Format<kFormat>::kEntries> host_tables() {
  Tables<Format<kFormat>::kEntries> result{};
  if constexpr (Format<kFormat>::kHasTable) {
    const MomentTable &first = moment_table(kFormat, true), &second = moment_table(kFormat, false);
    for (int i = 0; i < Format<kFormat>::kEntries; ++i) {
      result.first.values[i] = first.values[i];
      result.first.thresholds[i] = first.thresholds[i];
      result.second.values[i] = second.values[i];
      result.second.thresholds[i] = second.thresholds[i];
    }
  }
  return result;
}

template <MomentFormat kFormat, int kCopies, bool kPlain>
void update(const LowBitAdamWArgs& args, const OpLaunch& launch) {
  const Coefficients c = coefficients(args.adamw);
  const auto tables = host_tables<kFormat>();
  const auto launch_table = [&](const Table& table) {
    const int grid = std::min(table.chunks(), kBlocks * sm_count(launch.device()));
    launch(low_bit_adamw_kernel<kFormat, kCopies, kPlain>, dim3(static_cast<unsigned>(grid)), kThreads,
           sizeof(Codebooks<kFormat, kCopies>), table, c, tables);
  };
  const auto make_entry = [&](const LowBitAdamWTensor& t) {
    const Entry e = entry(args, t);
    return is_plain(e) == kPlain ? e : Entry{};
  };
  for_tables<Table>(args.tensors, kWarps * kBlocksPerWarp, &Entry::blocks, make_entry, launch_table);
}

template <MomentFormat kFormat>
void update(const LowBitAdamWArgs& args, const OpLaunch& launch) {
  const auto run = [&]<int kCopies>() {
    update<kFormat, kCopies, true>(args, launch);
    update<kFormat, kCopies, false>(args, launch);
  };
  constexpr int kAll = 32, kHalf = kAll / 2;
  if constexpr (sizeof(Codebooks<kFormat, kAll>) > kLeastSharedBytes) {
    static_assert(sizeof(Codebooks<kFormat, kHalf>) <= kLeastSharedBytes);
    if (sizeof(Codebooks<kFormat, kAll>) > static_cast<std::size_t>(max_shared_bytes(launch.device())))
      return run.template operator()<kHalf>();
  }
  run.template operator()<kAll>();
}

void low_bit_adamw(const LowBitAdamWArgs& args) {
  const LowBitAdamWTensor& first = args.tensors.front();
  const OpLaunch launch("low_bit_adamw", {&first.param, &first.grad, &first.exp_avg.codes, &first.master});
  switch (args.format) {
    case MomentFormat::int8: update<MomentFormat::int8>(args, launch); break;
    case MomentFormat::int4: update<MomentFormat::int4>(args, launch); break;
    case MomentFormat::fp8: update<MomentFormat::fp8>(args, launch); break;
  }
  for (const LowBitAdamWTensor& t : args.tensors)
    if (t.amax.defined()) amax_slot(DeviceType::cuda, {t.param, t.amax, Granularity::tensor});
}

QUENCH_CUDA_KERNEL(low_bit_adamw_slot, low_bit_adamw);

}  // namespace
}  // namespace quench::cuda
