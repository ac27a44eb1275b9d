#include "core/ops/optimizer/adamw.h"

#include <type_traits>
#include <utility>

#include "core/cuda/common/launch.h"
#include "core/cuda/common/tensor_chunks.cuh"
#include "core/cuda/common/vector.cuh"
#include "core/cuda/optimizer/adamw_math.cuh"
#include "core/cuda/optimizer/adamw_values.cuh"
#include "core/cuda/quantize/quant_outputs.cuh"
#include "core/number/split_f32.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kChunk = 16 * 1024;  // 64 elements per thread
constexpr int kPerThread = 8;      // in flight
constexpr int kBlocks = 4;         // min CTAs per SM: loads in flight hide latency

struct Entry {
  void* param;
  const void* grad;
  void* exp_avg;
  void* exp_avg_sq;
  void* master;         // f32, or i16 if split
  std::uint32_t* amax;  // null unless kAmax
  std::int64_t numel;
  std::uint64_t philox_key;
  std::uint64_t element_offset;
  float decay;
  bool wide;  // vector-aligned addresses; element_offset aligned to random blocks
};
constexpr int kCapacity = 320;
using Table = ChunkTable<Entry, kCapacity>;

struct Coefficients {
  AdamWCoefficients arithmetic;
  std::uint64_t step;
  const float* grad_scale;  // optional
};
static_assert(sizeof(Table) + sizeof(Coefficients) <= kMaxParameterBytes);

// Bits 0 to 2: param, grad, moments in bf16; bit 3: master weight; bit 4: split (core/number/split_f32.h).
template <unsigned kBits>
struct Layout {
  template <unsigned kBit>
  using Type = std::conditional_t<(kBits >> kBit & 1u) != 0, bfloat16, float>;
  using Param = Type<0>;
  using Grad = Type<1>;
  using Moment = Type<2>;
  static constexpr bool kMaster = (kBits >> 3 & 1u) != 0;
  static constexpr bool kSplit = (kBits >> 4 & 1u) != 0;
  using Weight = std::conditional_t<kMaster, float, Param>;  // updated weight
  static constexpr bool kAllBf16 = kBits == 7u;
  // Stochastically rounded, by AdamWRounding.
  static constexpr unsigned kRounded =
      (std::is_same_v<Weight, bfloat16> ? 1u << number_of(AdamWRounding::param) : 0u) |
      (std::is_same_v<Moment, bfloat16>
           ? 1u << number_of(AdamWRounding::exp_avg) | 1u << number_of(AdamWRounding::exp_avg_sq)
           : 0u);
};
// Master weights for bf16 params only.
using Layouts = std::integer_sequence<unsigned, 0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 15, 25, 27, 29, 31>;

unsigned layout_of(const AdamWTensor& t) {
  const auto bit = [](bool set, unsigned index) { return set ? 1u << index : 0u; };
  return bit(t.param.dtype() == DType::bf16, 0) | bit(t.grad.dtype() == DType::bf16, 1) |
         bit(t.exp_avg.dtype() == DType::bf16, 2) | bit(t.master.defined(), 3) |
         bit(t.master.defined() && t.master.dtype() == DType::i16, 4);
}

// 16 or 8 bytes, or an element; all data is read or written once.
template <class V>
using Bits = std::conditional_t<sizeof(V) == 16, int4, int2>;

template <class T, int N>
__device__ Vector<T, N> read(const T* pointer) {
  using V = Vector<T, N>;
  if constexpr (N == 1) {
    return {*pointer};
  } else {
    const Bits<V> bits = __ldcs(reinterpret_cast<const Bits<V>*>(pointer));
    return *reinterpret_cast<const V*>(&bits);
  }
}

template <class T, int N>
__device__ void write(T* pointer, const Vector<T, N>& value) {
  using V = Vector<T, N>;
  if constexpr (N == 1)
    *pointer = value[0];
  else
    __stcs(reinterpret_cast<Bits<V>*>(pointer), *reinterpret_cast<const Bits<V>*>(&value));
}

template <int N>
__device__ Vector<float, N> join(const Vector<bfloat16, N>& upper, const Vector<std::int16_t, N>& low) {
  Vector<float, N> result;
#pragma unroll
  for (int i = 0; i < N; ++i) result[i] = join_f32(upper[i], low[i]);
  return result;
}

template <int N>
__device__ Vector<std::int16_t, N> lower_halves(const Vector<float, N>& value, const Vector<bfloat16, N>& upper) {
  Vector<std::int16_t, N> result;
#pragma unroll
  for (int i = 0; i < N; ++i) result[i] = split_low(value[i], upper[i]);
  return result;
}

struct NoMax {
  template <class V>
  __device__ void add(const V&) {}
};

// Per thread, N consecutive elements.
template <class L, int N>
struct Slice {
  Vector<typename L::Grad, N> grad;
  Vector<typename L::Moment, N> exp_avg, exp_avg_sq;
  Vector<typename L::Weight, N> weight;

  __device__ void load(const Entry& e, std::int64_t i) {
    grad = read<typename L::Grad, N>(static_cast<const typename L::Grad*>(e.grad) + i);
    exp_avg = read<typename L::Moment, N>(static_cast<const typename L::Moment*>(e.exp_avg) + i);
    exp_avg_sq = read<typename L::Moment, N>(static_cast<const typename L::Moment*>(e.exp_avg_sq) + i);
    if constexpr (L::kSplit)
      weight = join(read<bfloat16, N>(static_cast<const bfloat16*>(e.param) + i),
                    read<std::int16_t, N>(static_cast<const std::int16_t*>(e.master) + i));
    else if constexpr (L::kMaster)
      weight = read<float, N>(static_cast<const float*>(e.master) + i);
    else
      weight = read<typename L::Param, N>(static_cast<const typename L::Param*>(e.param) + i);
  }

  // `most`: amax of stored params.
  template <bool kStochastic, class Most>
  __device__ void update(const Entry& e, const Coefficients& c, float grad_scale, std::int64_t i, Most& most) const {
    Vector<float, N> p = widen(weight), m = widen(exp_avg), v = widen(exp_avg_sq);
    const Vector<float, N> g = widen(grad);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      p[j] *= e.decay;
      update_moments(c.arithmetic, g[j] * grad_scale, m[j], v[j]);
    }
    if constexpr (N == 1) {
      p[0] = step_weight(c.arithmetic, p[0], m[0], v[0]);
    } else {
      UsualMoments usual;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        p[j] = fast_step_weight(c.arithmetic, p[j], m[j], v[j]);
        usual.add(p[j], m[j], v[j]);
      }
      if (!(usual.all() & c.arithmetic.ordinary)) [[unlikely]]
        check_group(e, c, p, m, v);
    }
    if constexpr (kStochastic) {
      const std::uint64_t first = e.element_offset + static_cast<std::uint64_t>(i);
      store(e, i, p, m, v, RandomBits<L::kRounded, N>(e.philox_key, c.step, first), most);
    } else {
      store(e, i, p, m, v, Nearest<N>(), most);
    }
  }

  // Recomputes elements where fast_step_weight may be inexact.
  __device__ void check_group(const Entry& e, const Coefficients& c, Vector<float, N>& p, Vector<float, N>& m,
                              Vector<float, N>& v) const {
    const Vector<float, N> start = widen(weight);
    bool ordinary = c.arithmetic.ordinary;
#pragma unroll
    for (int j = 0; j < N; ++j)  // NaN moments imply a NaN weight
      ordinary = ordinary & ordinary_moments(m[j], v[j]) & (p[j] == p[j]);
    if (ordinary) return;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      p[j] = canonical_nan(step_weight(c.arithmetic, start[j] * e.decay, m[j], v[j]));
      m[j] = canonical_nan(m[j]);
      v[j] = canonical_nan(v[j]);
    }
  }

  template <class Rounding, class Most>
  __device__ static void store(const Entry& e, std::int64_t i, const Vector<float, N>& p, const Vector<float, N>& m,
                               const Vector<float, N>& v, const Rounding& rounding, Most& most) {
    using Param = typename L::Param;
    using Moment = typename L::Moment;
    write(static_cast<Moment*>(e.exp_avg) + i, rounding.template round<Moment>(m, AdamWRounding::exp_avg));
    write(static_cast<Moment*>(e.exp_avg_sq) + i, rounding.template round<Moment>(v, AdamWRounding::exp_avg_sq));
    Vector<Param, N> param;
    if constexpr (L::kSplit) {
      param = nearest<Param>(p);
      write(static_cast<std::int16_t*>(e.master) + i, lower_halves(p, param));
    } else if constexpr (L::kMaster) {
      write(static_cast<float*>(e.master) + i, nearest<float>(p));
      param = nearest<Param>(p);
    } else {
      param = rounding.template round<Param>(p, AdamWRounding::param);
    }
    write(static_cast<Param*>(e.param) + i, param);
    most.add(param);
  }
};

// Memory bound. Bytes per element: 14 all in bf16; 28 with bf16 param and grad, f32 states and master (26 if it
// is split); 28 all in f32.
// kAmax: atomic maximum, initially zero.
template <unsigned kBits, bool kStochastic, bool kAmax>
__global__ __launch_bounds__(kThreads, kBlocks) void adamw_kernel(const __grid_constant__ Table table,
                                                                  const __grid_constant__ Coefficients c) {
  using L = Layout<kBits>;
  const float grad_scale = c.grad_scale != nullptr ? *c.grad_scale : 1.0f;
  const bool updates = isfinite(grad_scale);
  if (!kAmax && !updates) return;
  const auto [e, begin, n] = table.chunk<kChunk>();
  std::conditional_t<kAmax, RunningMax<typename L::Param>, NoMax> most;

  // 16 bytes of the widest dtype, coalesced.
  constexpr int kWidth = L::kAllBf16 ? 8 : 4, kVectors = kPerThread / kWidth;
  const int vectors = e.wide && updates ? n / kWidth : 0;
  for (int base = static_cast<int>(threadIdx.x); base < vectors; base += kThreads * kVectors) {
    Slice<L, kWidth> slices[kVectors];
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
      if (const int vector = base + k * kThreads; k == 0 || vector < vectors)
        slices[k].load(e, begin + static_cast<std::int64_t>(vector) * kWidth);
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
      if (const int vector = base + k * kThreads; k == 0 || vector < vectors)
        slices[k].template update<kStochastic>(e, c, grad_scale, begin + static_cast<std::int64_t>(vector) * kWidth,
                                               most);
  }
  for (int i = vectors * kWidth + static_cast<int>(threadIdx.x); i < n; i += kThreads) {
    if (kAmax && !updates) {
      most.add(static_cast<const typename L::Param*>(e.param)[begin + i]);
      continue;
    }
    Slice<L, 1> slice;
    slice.load(e, begin + i);
    slice.template update<kStochastic>(e, c, grad_scale, begin + i, most);
  }
  if constexpr (kAmax) {
    __shared__ BlockMax::Scratch scratch;
    BlockMax block_max(scratch);
    raise_amax(e.amax, most.word(), block_max);
  }
}

__global__ void zero_amax_kernel(const __grid_constant__ Table table) {
  for (int i = static_cast<int>(threadIdx.x); i < table.count; i += kThreads) *table.entries[i].amax = 0;
}

Coefficients coefficients(const AdamWArgs& args) {
  return {.arithmetic = adamw_coefficients(args),
          .step = static_cast<std::uint64_t>(args.step),
          .grad_scale = args.grad_scale.defined() ? args.grad_scale.data<float>() : nullptr};
}

Entry entry(const AdamWArgs& args, const AdamWTensor& t) {
  const auto address = [](const Tensor& x) { return x.defined() ? x.raw_data() : nullptr; };
  std::uintptr_t addresses = 0;
  for (const Tensor* x : {&t.param, &t.grad, &t.exp_avg, &t.exp_avg_sq, &t.master})
    addresses |= reinterpret_cast<std::uintptr_t>(address(*x));
  return {.param = address(t.param),
          .grad = address(t.grad),
          .exp_avg = address(t.exp_avg),
          .exp_avg_sq = address(t.exp_avg_sq),
          .master = address(t.master),
          .amax = static_cast<std::uint32_t*>(address(t.amax)),
          .numel = t.param.numel(),
          .philox_key = philox_key(args.seed, t.random_stream),
          .element_offset = static_cast<std::uint64_t>(t.element_offset),
          .decay = static_cast<float>(1 - args.lr * t.weight_decay),
          .wide = addresses % 16 == 0 && (t.element_offset % 8 == 0 || !args.stochastic_rounding)};
}

template <unsigned kBits, bool kAmax>
void update_layout(const AdamWArgs& args, const OpLaunch& launch) {
  const Coefficients c = coefficients(args);
  const auto launch_table = [&](const Table& table) {
    const dim3 grid(static_cast<unsigned>(table.chunks()));
    if constexpr (kAmax) launch(zero_amax_kernel, 1, kThreads, 0, table);
    if constexpr (Layout<kBits>::kRounded != 0) {
      if (args.stochastic_rounding) return launch(adamw_kernel<kBits, true, kAmax>, grid, kThreads, 0, table, c);
    }
    launch(adamw_kernel<kBits, false, kAmax>, grid, kThreads, 0, table, c);
  };
  const auto make_entry = [&](const AdamWTensor& t) {
    return layout_of(t) == kBits && t.amax.defined() == kAmax ? entry(args, t) : Entry{};
  };
  for_tables<Table>(args.tensors, kChunk, &Entry::numel, make_entry, launch_table);
}

template <bool kAmax, unsigned... kBits>
void update_layouts(const AdamWArgs& args, const OpLaunch& launch, std::integer_sequence<unsigned, kBits...>) {
  std::uint32_t present = 0;
  for (const AdamWTensor& t : args.tensors)
    if (t.param.numel() > 0 && t.amax.defined() == kAmax) present |= 1u << layout_of(t);
  ((present >> kBits & 1u ? update_layout<kBits, kAmax>(args, launch) : void()), ...);
}

void adamw(const AdamWArgs& args) {
  const AdamWTensor& first = args.tensors.front();
  const OpLaunch launch("adamw", {&first.param, &first.grad, &first.exp_avg, &first.exp_avg_sq, &first.master});
  update_layouts<false>(args, launch, Layouts());
  update_layouts<true>(args, launch, Layouts());
  for (const AdamWTensor& t : args.tensors)
    if (t.param.numel() == 0 && t.amax.defined())
      launch.check(cudaMemsetAsync(t.amax.raw_data(), 0, t.amax.nbytes(), launch.stream()));
}

QUENCH_CUDA_KERNEL(adamw_slot, adamw);

}  // namespace
}  // namespace quench::cuda
