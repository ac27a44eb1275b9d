#include "core/ops/optimizer/low_bit_adamw.h"

#include "core/cuda/common/launch.h"
#include "core/cuda/common/reduce.cuh"
#include "core/cuda/common/tensor_chunks.cuh"
#include "core/cuda/optimizer/adamw_math.cuh"
#include "core/cuda/optimizer/elements.cuh"
#include "core/number/float8.h"
#include "core/ops/quantize/quantize.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kBlocksPerWarp = 8;  // quantization blocks, one after the other

struct MomentPointers {
  std::uint8_t* codes;
  float* scales;
};

struct Entry {
  Elements param, grad, weights;  // weights: the master, or the param
  MomentPointers exp_avg, exp_avg_sq;
  std::int64_t blocks;
  std::uint64_t philox_key;
  std::uint64_t element_offset;
  float decay;  // -lr wd
  bool has_master, stochastic;
  bool wide;  // addresses aligned for whole vectors
};
constexpr int kCapacity = 240;
using Table = ChunkTable<Entry, kCapacity>;

struct Coefficients {
  AdamWCoefficients arithmetic;
  std::uint64_t step;
  const float* grad_scale;  // or nullptr
};

template <MomentFormat kFormat>
struct Format {
  static constexpr bool kHasTable = kFormat != MomentFormat::fp8;
  static constexpr int kEntries = kFormat == MomentFormat::int4 ? 16 : kFormat == MomentFormat::int8 ? 256 : 1;
  static constexpr int kBlock = static_cast<int>(moment_block(kFormat));
  static constexpr int kEach = kBlock / 32;  // elements of a lane
};

template <int kEntries>
struct SmallTable {
  float values[kEntries];
  float thresholds[kEntries];
};
// The tables of both moments, as parameters of a launch.
template <int kEntries>
struct Tables {
  SmallTable<kEntries> first, second;
};
static_assert(sizeof(Table) + sizeof(Coefficients) + sizeof(Tables<256>) <= kMaxParameterBytes);

// A table as a block reads it. Codes of 8 bits are found by key: a search of eight steps would be eight reads that
// compete for the banks of shared memory.
template <MomentFormat kFormat, bool kSigned>
struct Lookup : SmallTable<Format<kFormat>::kEntries> {
  static constexpr int kEntries = Format<kFormat>::kEntries;
  static constexpr int kKeys = kFormat == MomentFormat::int8 ? MomentKey::kCount * (kSigned ? 2 : 1) : 0;
  std::uint8_t first[kKeys + 1];

  // The block calls it together, and waits.
  __device__ void fill(const SmallTable<kEntries>& from) {
    for (int i = static_cast<int>(threadIdx.x); i < kEntries; i += kThreads) {
      this->values[i] = from.values[i];
      this->thresholds[i] = from.thresholds[i];
    }
    __syncthreads();
    for (int key = static_cast<int>(threadIdx.x); key < kKeys; key += kThreads)
      first[key] = static_cast<std::uint8_t>(first_of_key(this->thresholds, kEntries, key));
    __syncthreads();
  }
  __device__ int code(float y) const {
    // Second moments are not negative; what is below 0 has code 0 either way.
    if constexpr (kKeys > 0)
      return code_by_key(this->thresholds, kEntries, first, kSigned ? y : fmaxf(y, 0.0f));
    else
      return search_moment(this->thresholds, kEntries, y);
  }
};

// A lane's part of a moment's block.
template <MomentFormat kFormat, bool kSigned>
struct Moment {
  static constexpr int kEach = Format<kFormat>::kEach;
  static constexpr int kBytes = kFormat == MomentFormat::int4 ? kEach / 2 : kEach;
  using Bytes = Vector<std::uint8_t, kBytes>;
  using Codebook = Lookup<kFormat, kSigned>;

  // The lane's codes are at `place`, a multiple of kBytes.
  __device__ static Vector<float, kEach> load(const MomentPointers& at, std::int64_t block, std::int64_t place,
                                              const Codebook& table) {
    const Bytes codes = *reinterpret_cast<const Bytes*>(at.codes + place);
    const float scale = at.scales[block];
    Vector<float, kEach> result;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      if constexpr (kFormat == MomentFormat::int8)
        result[j] = table.values[codes[j]] * scale;
      else if constexpr (kFormat == MomentFormat::int4)
        result[j] = table.values[j % 2 == 0 ? codes[j / 2] >> 4 : codes[j / 2] & 15] * scale;
      else
        result[j] = E4m3::decode(codes[j]) * scale;
    }
    return result;
  }

  __device__ static void store(const MomentPointers& at, std::int64_t block, std::int64_t place, const Codebook& table,
                               const Vector<float, kEach>& x) {
    float most = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) most = fmaxf(most, fabsf(x[j]));
    most = warp_reduce(most, Max());
    constexpr float kFactor = moment_scale_factor(kFormat);
    const float scale = fmaxf(most, kLeastMomentMagnitude) * kFactor;
    if (threadIdx.x % 32 == 0) at.scales[block] = scale;
    Bytes codes{};
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const float y = x[j] / scale;
      if constexpr (kFormat == MomentFormat::fp8) {
        codes[j] = E4m3::encode(y);
      } else {
        const int code = table.code(y);
        if constexpr (kFormat == MomentFormat::int8)
          codes[j] = static_cast<std::uint8_t>(code);
        else
          codes[j / 2] = static_cast<std::uint8_t>(j % 2 == 0 ? code << 4 : codes[j / 2] | code);
      }
    }
    *reinterpret_cast<Bytes*>(at.codes + place) = codes;
  }
};

// A warp takes a block of elements: its moments become numbers, are updated and become codes under new scales. Bytes an
// element with bf16 params and gradients, f32 master and 8-bit moments: 16.
template <MomentFormat kFormat>
__global__ __launch_bounds__(kThreads) void low_bit_adamw_kernel(
    const __grid_constant__ Table table, const __grid_constant__ Coefficients c,
    const __grid_constant__ Tables<Format<kFormat>::kEntries> tables) {
  using F = Format<kFormat>;
  using First = Moment<kFormat, true>;
  using Second = Moment<kFormat, false>;
  __shared__ typename First::Codebook of_first;
  __shared__ typename Second::Codebook of_second;
  const float grad_scale = c.grad_scale != nullptr ? *c.grad_scale : 1.0f;
  if (!isfinite(grad_scale)) return;
  if constexpr (F::kHasTable) {
    of_first.fill(tables.first);
    of_second.fill(tables.second);
  }
  const int chunk = static_cast<int>(blockIdx.x), index = table.entry_of(chunk);
  const Entry& e = table.entries[index];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t first = static_cast<std::int64_t>(chunk - table.first_chunk[index]) * (kWarps * kBlocksPerWarp);
  constexpr int kEach = F::kEach;
  for (int k = 0; k < kBlocksPerWarp; ++k) {
    const std::int64_t block = first + k * kWarps + warp;
    if (block >= e.blocks) return;
    const std::int64_t i = block * F::kBlock + lane * kEach;
    const std::int64_t place = block * (32 * First::kBytes) + lane * First::kBytes;
    const Vector<float, kEach> g = e.grad.load<kEach>(i, e.wide);
    Vector<float, kEach> p = e.weights.load<kEach>(i, e.wide);
    Vector<float, kEach> m = First::load(e.exp_avg, block, place, of_first);
    Vector<float, kEach> v = Second::load(e.exp_avg_sq, block, place, of_second);
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      update_moments(c.arithmetic, g[j] * grad_scale, m[j], v[j]);
      p[j] = step_weight(c.arithmetic, fmaf(e.decay, p[j], p[j]), m[j], v[j]);
    }
    First::store(e.exp_avg, block, place, of_first, m);
    Second::store(e.exp_avg_sq, block, place, of_second, v);
    if (e.has_master) e.weights.store(i, p, e.wide);
    if (e.stochastic)
      e.param.store_stochastic(
          i, p, RandomBits<1, kEach>(e.philox_key, c.step, e.element_offset + static_cast<std::uint64_t>(i)),
          AdamWRounding::param, e.wide);
    else
      e.param.store(i, p, e.wide);
  }
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

template <MomentFormat kFormat>
void update(const LowBitAdamWArgs& args, const OpLaunch& launch) {
  const Coefficients c = coefficients(args.adamw);
  const auto tables = host_tables<kFormat>();
  const auto flush = [&](const Table& table) {
    launch(low_bit_adamw_kernel<kFormat>, dim3(static_cast<unsigned>(table.chunks())), kThreads, 0, table, c, tables);
  };
  ChunkTableFiller<Table, decltype(flush)> filler(flush);
  constexpr std::int64_t kBlocks = kWarps * kBlocksPerWarp;
  for (const LowBitAdamWTensor& t : args.tensors) {
    const std::int64_t blocks = t.param.numel() / moment_block(kFormat);
    if (blocks > 0) filler.add(entry(args, t), (blocks + kBlocks - 1) / kBlocks);
  }
  filler.finish();
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
