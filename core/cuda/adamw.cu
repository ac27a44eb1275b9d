#include "core/ops/adamw.h"

#include <cmath>
#include <type_traits>
#include <utility>

#include "core/cuda/adamw_math.cuh"
#include "core/cuda/launch.h"
#include "core/cuda/tensor_chunks.cuh"
#include "core/cuda/vector.cuh"
#include "core/stochastic_rounding.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kChunk = 16 * 1024;  // elements of a block: 64 a thread
constexpr int kPerThread = 8;      // elements in flight
constexpr int kBlocks = 4;         // of a multiprocessor, at least: many threads' loads hide the latency

struct Entry {
  void* param;
  const void* grad;
  void* exp_avg;
  void* exp_avg_sq;
  float* master;
  std::int64_t numel;
  std::uint64_t philox_key;
  std::uint64_t element_offset;
  float decay;
  bool wide;  // addresses aligned for whole vectors, and element_offset for whole blocks of random numbers
};
constexpr int kCapacity = 320;
using Table = ChunkTable<Entry, kCapacity>;

struct Coefficients {
  AdamWCoefficients arithmetic;
  std::uint64_t step;
  const float* grad_scale;  // or nullptr
};
static_assert(sizeof(Table) + sizeof(Coefficients) <= kMaxParameterBytes);

QUENCH_HOST_DEVICE constexpr unsigned number_of(AdamWRounding what) {
  return static_cast<unsigned>(what);
}

// A combination of dtypes: bit 0 param, 1 grad, 2 exp_avg, 3 exp_avg_sq are bf16, bit 4 there is a master.
template <unsigned kBits>
struct Layout {
  template <unsigned kBit>
  using Type = std::conditional_t<(kBits >> kBit & 1u) != 0, bfloat16, float>;
  using Param = Type<0>;
  using Grad = Type<1>;
  using ExpAvg = Type<2>;
  using ExpAvgSq = Type<3>;
  static constexpr bool kMaster = (kBits >> 4 & 1u) != 0;
  using Weight = std::conditional_t<kMaster, float, Param>;  // what the update is added to
  static constexpr bool kAllBf16 = kBits == 0xFu;
  // What may be rounded stochastically, by AdamWRounding.
  static constexpr unsigned kRounded =
      (std::is_same_v<Weight, bfloat16> ? 1u << number_of(AdamWRounding::param) : 0u) |
      (std::is_same_v<ExpAvg, bfloat16> ? 1u << number_of(AdamWRounding::exp_avg) : 0u) |
      (std::is_same_v<ExpAvgSq, bfloat16> ? 1u << number_of(AdamWRounding::exp_avg_sq) : 0u);
};
constexpr unsigned kLayoutCount = 32;

unsigned layout_of(const AdamWTensor& t) {
  const auto bit = [](bool set, unsigned index) { return set ? 1u << index : 0u; };
  return bit(t.param.dtype() == DType::bf16, 0) | bit(t.grad.dtype() == DType::bf16, 1) |
         bit(t.exp_avg.dtype() == DType::bf16, 2) | bit(t.exp_avg_sq.dtype() == DType::bf16, 3) |
         bit(t.master.defined(), 4);
}

// One access of 16 or 8 bytes, or of one element. Everything here is read or written once in a step.
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
struct Floats {
  float x[N];
};

// Pairs of bf16 as words: one instruction an element, where nvcc spends two on every second one.
template <class T, int N>
__device__ Floats<N> widen(const Vector<T, N>& value) {
  Floats<N> result;
  if constexpr (std::is_same_v<T, bfloat16> && N > 1) {
    const auto& pairs = *reinterpret_cast<const Vector<std::uint32_t, N / 2>*>(&value);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      result.x[2 * i] = __uint_as_float(pairs[i] << 16);
      result.x[2 * i + 1] = __uint_as_float(pairs[i] & 0xFFFF0000u);
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) result.x[i] = to_float(value[i]);
  }
  return result;
}

template <class T, int N>
__device__ Vector<T, N> nearest(const Floats<N>& value) {
  Vector<T, N> result;
#pragma unroll
  for (int i = 0; i < N; ++i) result[i] = from_float<T>(value.x[i]);
  return result;
}

// Random bits of N neighbouring elements for each of kWanted (as in rounding_blocks): a word for a pair of elements, or
// the bits of the one.
template <unsigned kWanted, int N>
class RandomBits {
 public:
  // From element `first` on, a multiple of N: a whole block of random words, or a part of one.
  __device__ RandomBits(std::uint64_t key, std::uint64_t step, std::uint64_t first) {
    const RoundingBlocks blocks = rounding_blocks<kWanted>(first / kRoundingsPerBlock, step, key);
#pragma unroll
    for (unsigned what = 0; what < 3; ++what) {
      if ((kWanted >> what & 1u) == 0) continue;
      const std::uint32_t(&block)[4] = blocks.words[what];
      if constexpr (N == 8) {
#pragma unroll
        for (int i = 0; i < 4; ++i) words_[what][i] = block[i];
      } else {
        const bool upper = first % 8 >= 4;
        const std::uint32_t word0 = upper ? block[2] : block[0], word1 = upper ? block[3] : block[1];
        if constexpr (N == 4) {
          words_[what][0] = word0;
          words_[what][1] = word1;
        } else {
          words_[what][0] = (first % 4 >= 2 ? word1 : word0) >> static_cast<unsigned>(first % 2 * 16) & 0xFFFFu;
        }
      }
    }
  }

  // With several elements no value is NaN, or it is canonical_nan.
  template <class T>
  __device__ Vector<T, N> round(const Floats<N>& value, AdamWRounding what) const {
    const std::uint32_t(&words)[kWords] = words_[number_of(what)];
    if constexpr (std::is_same_v<T, float>) {
      return nearest<T>(value);
    } else if constexpr (N == 1) {
      return {stochastic_round_bf16(value.x[0], words[0])};
    } else {
      Vector<std::uint32_t, kWords> pairs;
#pragma unroll
      for (int i = 0; i < kWords; ++i) pairs[i] = stochastic_round_pair(value.x[2 * i], value.x[2 * i + 1], words[i]);
      return *reinterpret_cast<const Vector<T, N>*>(&pairs);
    }
  }

 private:
  static_assert((N == 8 || N == 4 || N == 1) && kRoundingsPerBlock == 8);
  static constexpr int kWords = (N + 1) / 2;
  std::uint32_t words_[3][kWords];
};

// Rounding to nearest in the same terms.
template <int N>
struct Nearest {
  template <class T>
  __device__ Vector<T, N> round(const Floats<N>& value, AdamWRounding /*what*/) const {
    return nearest<T>(value);
  }
};

// What a thread holds of N neighbouring elements.
template <class L, int N>
struct Slice {
  Vector<typename L::Grad, N> grad;
  Vector<typename L::ExpAvg, N> exp_avg;
  Vector<typename L::ExpAvgSq, N> exp_avg_sq;
  Vector<typename L::Weight, N> weight;

  __device__ void load(const Entry& e, std::int64_t i) {
    grad = read<typename L::Grad, N>(static_cast<const typename L::Grad*>(e.grad) + i);
    exp_avg = read<typename L::ExpAvg, N>(static_cast<const typename L::ExpAvg*>(e.exp_avg) + i);
    exp_avg_sq = read<typename L::ExpAvgSq, N>(static_cast<const typename L::ExpAvgSq*>(e.exp_avg_sq) + i);
    if constexpr (L::kMaster)
      weight = read<float, N>(e.master + i);
    else
      weight = read<typename L::Param, N>(static_cast<const typename L::Param*>(e.param) + i);
  }

  template <bool kStochastic>
  __device__ void update(const Entry& e, const Coefficients& c, float grad_scale, std::int64_t i) const {
    Floats<N> p = widen(weight), m = widen(exp_avg), v = widen(exp_avg_sq);
    const Floats<N> g = widen(grad);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      p.x[j] *= e.decay;
      update_moments(c.arithmetic, g.x[j] * grad_scale, m.x[j], v.x[j]);
    }
    if constexpr (N == 1) {
      p.x[0] = step_weight(c.arithmetic, p.x[0], m.x[0], v.x[0]);
    } else {
      UsualMoments usual;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        p.x[j] = fast_step_weight(c.arithmetic, p.x[j], m.x[j], v.x[j]);
        usual.add(p.x[j], m.x[j], v.x[j]);
      }
      if (!(usual.all() & c.arithmetic.ordinary)) [[unlikely]]
        check_group(e, c, p, m, v);
    }
    if constexpr (kStochastic) {
      const std::uint64_t first = e.element_offset + static_cast<std::uint64_t>(i);
      store(e, i, p, m, v, RandomBits<L::kRounded, N>(e.philox_key, c.step, first));
    } else {
      store(e, i, p, m, v, Nearest<N>());
    }
  }

  // Computes again what fast_step_weight may have wrong.
  __device__ void check_group(const Entry& e, const Coefficients& c, Floats<N>& p, Floats<N>& m, Floats<N>& v) const {
    const Floats<N> start = widen(weight);
    bool ordinary = c.arithmetic.ordinary;
#pragma unroll
    for (int j = 0; j < N; ++j)  // NaN in a moment is NaN in the weight too
      ordinary = ordinary & ordinary_moments(m.x[j], v.x[j]) & (p.x[j] == p.x[j]);
    if (ordinary) return;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      p.x[j] = canonical_nan(step_weight(c.arithmetic, start.x[j] * e.decay, m.x[j], v.x[j]));
      m.x[j] = canonical_nan(m.x[j]);
      v.x[j] = canonical_nan(v.x[j]);
    }
  }

  template <class Rounding>
  __device__ static void store(const Entry& e, std::int64_t i, const Floats<N>& p, const Floats<N>& m,
                               const Floats<N>& v, const Rounding& rounding) {
    using Param = typename L::Param;
    using ExpAvg = typename L::ExpAvg;
    using ExpAvgSq = typename L::ExpAvgSq;
    write(static_cast<ExpAvg*>(e.exp_avg) + i, rounding.template round<ExpAvg>(m, AdamWRounding::exp_avg));
    write(static_cast<ExpAvgSq*>(e.exp_avg_sq) + i, rounding.template round<ExpAvgSq>(v, AdamWRounding::exp_avg_sq));
    if constexpr (L::kMaster) {
      write(e.master + i, nearest<float>(p));
      write(static_cast<Param*>(e.param) + i, nearest<Param>(p));
    } else {
      write(static_cast<Param*>(e.param) + i, rounding.template round<Param>(p, AdamWRounding::param));
    }
  }
};

// Bytes an element: grad, exp_avg, exp_avg_sq and weight read; exp_avg, exp_avg_sq, param and master written. 14 with
// all in bf16; 28 with bf16 param and grad, f32 states and master; 28 with all in f32.
template <unsigned kBits, bool kStochastic>
__global__ __launch_bounds__(kThreads, kBlocks) void adamw_kernel(const __grid_constant__ Table table,
                                                                  const __grid_constant__ Coefficients c) {
  using L = Layout<kBits>;
  const float grad_scale = c.grad_scale != nullptr ? *c.grad_scale : 1.0f;
  if (!isfinite(grad_scale)) return;
  const int chunk = static_cast<int>(blockIdx.x), index = table.entry_of(chunk);
  const Entry& e = table.entries[index];
  const std::int64_t begin = static_cast<std::int64_t>(chunk - table.first_chunk[index]) * kChunk;
  const int n = static_cast<int>(min(static_cast<std::int64_t>(kChunk), e.numel - begin));

  // The widest type of the layout is accessed 16 bytes at a time; the threads of a warp are neighbours.
  constexpr int kWidth = L::kAllBf16 ? 8 : 4, kVectors = kPerThread / kWidth;
  const int vectors = e.wide ? n / kWidth : 0;
  for (int base = static_cast<int>(threadIdx.x); base < vectors; base += kThreads * kVectors) {
    Slice<L, kWidth> slices[kVectors];
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
      if (const int vector = base + k * kThreads; k == 0 || vector < vectors)
        slices[k].load(e, begin + static_cast<std::int64_t>(vector) * kWidth);
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
      if (const int vector = base + k * kThreads; k == 0 || vector < vectors)
        slices[k].template update<kStochastic>(e, c, grad_scale, begin + static_cast<std::int64_t>(vector) * kWidth);
  }
  for (int i = vectors * kWidth + static_cast<int>(threadIdx.x); i < n; i += kThreads) {
    Slice<L, 1> slice;
    slice.load(e, begin + i);
    slice.template update<kStochastic>(e, c, grad_scale, begin + i);
  }
}

Coefficients coefficients(const AdamWArgs& args) {
  const auto step = static_cast<double>(args.step);
  const auto bias2 = static_cast<float>(std::sqrt(1 - std::pow(args.beta2, step))), eps = static_cast<float>(args.eps);
  return {.arithmetic = {.weight1 = static_cast<float>(1 - args.beta1),
                         .beta2 = static_cast<float>(args.beta2),
                         .weight2 = static_cast<float>(1 - args.beta2),
                         .bias2 = bias2,
                         .inverse_bias2 = 1.0f / bias2,
                         .eps = eps,
                         .step_size = static_cast<float>(-args.lr / (1 - std::pow(args.beta1, step))),
                         .ordinary = ordinary_coefficients(bias2, eps)},
          .step = static_cast<std::uint64_t>(args.step),
          .grad_scale = args.grad_scale.defined() ? args.grad_scale.data<float>() : nullptr};
}

// The key that random_block (core/random.h) derives from a seed and a stream.
std::uint64_t philox_key(std::uint64_t seed, std::uint64_t stream) {
  return mix64(seed) ^ mix64(stream + 0x9E3779B97F4A7C15ull);
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
          .master = static_cast<float*>(address(t.master)),
          .numel = t.param.numel(),
          .philox_key = philox_key(args.seed, t.random_stream),
          .element_offset = static_cast<std::uint64_t>(t.element_offset),
          .decay = static_cast<float>(1 - args.lr * t.weight_decay),
          .wide = addresses % 16 == 0 && (t.element_offset % 8 == 0 || !args.stochastic_rounding)};
}

// Updates the tensors of one combination of dtypes: one launch for hundreds of them.
template <unsigned kBits>
void update_layout(const AdamWArgs& args, const OpLaunch& launch) {
  const Coefficients c = coefficients(args);
  const auto flush = [&](const Table& table) {
    const dim3 grid(static_cast<unsigned>(table.chunks()));
    if constexpr (Layout<kBits>::kRounded != 0) {
      if (args.stochastic_rounding) return launch(adamw_kernel<kBits, true>, grid, kThreads, 0, table, c);
    }
    launch(adamw_kernel<kBits, false>, grid, kThreads, 0, table, c);
  };
  ChunkTableFiller<Table, decltype(flush)> filler(flush);
  for (const AdamWTensor& t : args.tensors)
    if (t.param.numel() > 0 && layout_of(t) == kBits)
      filler.add(entry(args, t), (t.param.numel() + kChunk - 1) / kChunk);
  filler.finish();
}

template <unsigned... kBits>
void update_layouts(const AdamWArgs& args, const OpLaunch& launch, std::integer_sequence<unsigned, kBits...>) {
  std::uint32_t present = 0;
  for (const AdamWTensor& t : args.tensors)
    if (t.param.numel() > 0) present |= 1u << layout_of(t);
  ((present >> kBits & 1u ? update_layout<kBits>(args, launch) : void()), ...);
}

void adamw(const AdamWArgs& args) {
  const AdamWTensor& first = args.tensors.front();
  const OpLaunch launch("adamw", {&first.param, &first.grad, &first.exp_avg, &first.exp_avg_sq, &first.master});
  update_layouts(args, launch, std::make_integer_sequence<unsigned, kLayoutCount>());
}

QUENCH_CUDA_KERNEL(adamw_slot, adamw);

}  // namespace
}  // namespace quench::cuda
