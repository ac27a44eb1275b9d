// Dequantizing GEMM of few rows, and dequantization: one or two weight rows per warp, in registers; f32 accumulators.

#include "core/cuda/common/launch.h"
#include "core/cuda/common/packed_codes.cuh"
#include "core/cuda/common/packed_view.cuh"
#include "core/cuda/common/pdl.cuh"
#include "core/cuda/common/reduce.cuh"
#include "core/cuda/common/swiglu_math.cuh"
#include "core/cuda/common/vector.cuh"
#include "core/cuda/gemm/packed_gemm.h"
#include "core/cuda/gemm/small_m_gemm.h"
#include "core/ops/gated_linear.h"
#include "core/ops/packed_linear.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kPieceBytes = 16;  // per lane and load
constexpr int kWords = kPieceBytes / 4;

// Consecutive and aligned.
template <int kCount, class T>
__device__ void load_values(const T* from, float (&to)[kCount]) {
  constexpr int kWidth = kCount < kVectorWidth<T> ? kCount : kVectorWidth<T>;
#pragma unroll
  for (int first = 0; first < kCount; first += kWidth) {
    const auto values = *reinterpret_cast<const Vector<T, kWidth>*>(from + first);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) to[first + i] = to_float(values[i]);
  }
}

// Weight rows of a warp: kColumns outputs, or (kGated) a gate and an up row. Past the last output: clamped, not stored.
template <int kColumns, bool kGated>
struct WarpRows {
  std::int64_t outputs, first;

  explicit __device__ WarpRows(const PackedView& w)
      : outputs(kGated ? w.rows / 2 : w.rows),
        first((std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32) * (kGated ? 1 : kColumns)) {}
  [[nodiscard]] __device__ std::int64_t operator[](int c) const {
    return kGated ? min(first, outputs - 1) + c * outputs : min(first + c, outputs - 1);
  }
};

template <class T>
__device__ __forceinline__ float biased(float sum, const T* bias, std::int64_t column) {
  return sum + (bias != nullptr ? to_float(bias[column]) : 0.0f);
}

// Gate and up sums. Rounding of the unfused GEMM: bit-identical to GEMM then swiglu().
template <class T>
__device__ __forceinline__ void store_gated(const float (&sums)[2][1], const WarpRows<2, true>& rows,
                                            const PackedOutput& out, const T* bias, GatedActivation activation) {
  Vector<float, 1> values[2];
#pragma unroll
  for (int c = 0; c < 2; ++c)
    values[c][0] = to_float(from_float<T>(biased(warp_reduce(sums[c][0], Sum()), bias, rows[c])));
  if (threadIdx.x % 32 == 0) out.write<T>(0, rows.first, swiglu_of(activation, values[0], values[1])[0]);
}

template <int kRows, int kColumns, class T>
__device__ __forceinline__ void store_sums(const float (&sums)[kColumns][kRows], const WarpRows<kColumns, false>& rows,
                                           const PackedOutput& out, const T* bias) {
#pragma unroll
  for (int c = 0; c < kColumns; ++c)
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const float sum = warp_reduce(sums[c][row], Sum());
      if (threadIdx.x % 32 == 0 && rows.first + c < rows.outputs)
        out.write<T>(row, rows.first + c, biased(sum, bias, rows.first + c));
    }
}

// 16-byte vectors lie in one group, or groups are whole words (words_per_group below kWords). L2 prefetch of the weight
// before pdl_wait(). kGated: a gate and an up row per warp, output activation(gate) * up.
template <class Codes, int kRows, int kColumns, bool kOffsets, bool kGated, class T>
__global__ __launch_bounds__(kThreads) void packed_linear_kernel(const T* x, PackedView w, int words_per_group,
                                                                 PackedOutput out, const T* bias,
                                                                 GatedActivation activation) {
  pdl_launch_dependents();
  static_assert(!kGated || (kColumns == 2 && kRows == 1));
  constexpr int kCount = kPerWord<Codes>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const WarpRows<kColumns, kGated> rows(w);
  const std::uint8_t* codes[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) codes[c] = w.codes + rows[c] * w.row_bytes;
  const int bytes = static_cast<int>(w.row_bytes);
  for (int c = 0; c < kColumns; ++c)
    for (int at = lane * 128; at < bytes; at += 32 * 128) prefetch_l2(codes[c] + at);
  pdl_wait();
  if (rows.first >= rows.outputs) return;

  float sums[kColumns][kRows] = {};
  const int pieces = bytes / kPieceBytes;
#pragma unroll 2
  for (int piece = lane; piece < pieces; piece += 32) {
    uint4 words[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) words[c] = __ldcs(reinterpret_cast<const uint4*>(codes[c]) + piece);
    float parts[kColumns][kRows] = {}, totals[kRows] = {};
#pragma unroll
    for (int q = 0; q < kWords; ++q) {
      float values[kColumns][kCount];
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        Codes::decode_word(q == 0 ? words[c].x : q == 1 ? words[c].y : q == 2 ? words[c].z : words[c].w, values[c]);
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        float in[kCount];
        load_values(x + row * w.columns + std::int64_t{piece * kWords + q} * kCount, in);
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          if constexpr (kOffsets) totals[row] += in[i];
#pragma unroll
          for (int c = 0; c < kColumns; ++c) parts[c][row] = fmaf(values[c][i], in[i], parts[c][row]);
        }
      }
      if (q + 1 < kWords && words_per_group >= kWords) continue;
      const int group = (piece * kWords + q) / words_per_group;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const std::int64_t at = rows[c] * w.groups + group;
        const float scale = w.scale(at);
#pragma unroll
        for (int row = 0; row < kRows; ++row) {
          sums[c][row] = fmaf(scale, parts[c][row], sums[c][row]);
          if constexpr (kOffsets) sums[c][row] = fmaf(w.offsets[at], totals[row], sums[c][row]);
          parts[c][row] = 0.0f;
        }
      }
#pragma unroll
      for (int row = 0; row < kRows; ++row) totals[row] = 0.0f;
    }
  }
  if constexpr (kGated)
    store_gated(sums, rows, out, bias, activation);
  else
    store_sums(sums, rows, out, bias);
}

// Any group size and alignment.
template <class Codes, class T>
__global__ __launch_bounds__(kThreads) void packed_elements_kernel(const T* x, int rows, PackedView w, PackedOutput out,
                                                                   const T* bias) {
  pdl_sync();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t column = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (column >= w.rows) return;
  float sums[kPackedRows] = {};
  for (std::int64_t k = lane; k < w.columns; k += 32) {
    const std::uint32_t byte = w.codes[column * w.row_bytes + k * Codes::kBits / 8];
    const std::int64_t group = column * w.groups + k / w.group;
    const float code = Codes::decode(Codes::kBits == 4 ? byte >> (k % 2 * 4) : byte);
    const float value = fmaf(w.scale(group), code, w.offsets != nullptr ? w.offsets[group] : 0.0f);
#pragma unroll
    for (int row = 0; row < kPackedRows; ++row)
      if (row < rows) sums[row] = fmaf(value, to_float(x[row * w.columns + k]), sums[row]);
  }
#pragma unroll
  for (int row = 0; row < kPackedRows; ++row) {
    if (row >= rows) break;
    const float sum = warp_reduce(sums[row], Sum());
    if (lane == 0) out.write<T>(row, column, sum + (bias != nullptr ? to_float(bias[column]) : 0.0f));
  }
}

// Multiply and add each rounded to f32.
__device__ inline float value_of(float code, float scale, const float* offset) {
  const float product = __fmul_rn(code, scale);
  return offset != nullptr ? __fadd_rn(product, *offset) : product;
}

// A word at a time.
template <class Codes, class T>
__global__ __launch_bounds__(kThreads) void unpack_words_kernel(PackedView w, T* out) {
  constexpr int kCount = kPerWord<Codes>, kWidth = kCount < kVectorWidth<T> ? kCount : kVectorWidth<T>;
  const std::int64_t row = blockIdx.x;
  const auto* words = reinterpret_cast<const std::uint32_t*>(w.codes + row * w.row_bytes);
  const int count = static_cast<int>(w.row_bytes / 4), words_per_group = static_cast<int>(w.group / kCount);
  for (int at = static_cast<int>(threadIdx.x); at < count; at += kThreads) {
    float codes[kCount];
    Codes::decode_word(words[at], codes);
    const std::int64_t group = row * w.groups + (w.groups == 1 ? 0 : at / words_per_group);
    const float scale = w.scale(group);
    const float* offset = w.offsets != nullptr ? w.offsets + group : nullptr;
#pragma unroll
    for (int first = 0; first < kCount; first += kWidth) {
      Vector<T, kWidth> values;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) values[i] = from_float<T>(value_of(codes[first + i], scale, offset));
      *reinterpret_cast<Vector<T, kWidth>*>(out + row * w.columns + std::int64_t{at} * kCount + first) = values;
    }
  }
}

template <class Codes, class T>
__global__ __launch_bounds__(kThreads) void unpack_elements_kernel(PackedView w, T* out) {
  const std::int64_t row = blockIdx.x;
  for (std::int64_t k = threadIdx.x; k < w.columns; k += kThreads) {
    const std::uint32_t byte = w.codes[row * w.row_bytes + k * Codes::kBits / 8];
    const std::int64_t group = row * w.groups + k / w.group;
    out[row * w.columns + k] =
        from_float<T>(value_of(Codes::decode(Codes::kBits == 4 ? byte >> (k % 2 * 4) : byte), w.scale(group),
                               w.offsets != nullptr ? w.offsets + group : nullptr));
  }
}

template <class Body>
void dispatch_codes(DType dtype, std::string_view op, const Body& body) {
  switch (dtype) {
    case DType::i4: return body.template operator()<Int4>();
    case DType::i8: return body.template operator()<Int8>();
    case DType::f4_e2m1: return body.template operator()<Float4>();
    case DType::f8_e4m3: return body.template operator()<Float8>();
    default: QUENCH_FAIL(ErrorCode::unsupported, "{}: codes of dtype {} are not supported", op, to_string(dtype));
  }
}

bool aligned(const Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.raw_data()) % 16 == 0;
}

// 0 unless rows are whole vectors and groups whole words.
template <class Codes>
int words_per_group(const PackedMatrix& m) {
  constexpr std::int64_t kPiece = kWords * kPerWord<Codes>;
  const std::int64_t group = m.group_size();
  if (m.columns() % kPiece != 0 || !aligned(m.codes())) return 0;
  if (m.groups() == 1) return static_cast<int>(m.columns() / kPerWord<Codes>);
  const bool fits = group % kPiece == 0 || (kPiece % group == 0 && group % kPerWord<Codes> == 0);
  return fits ? static_cast<int>(group / kPerWord<Codes>) : 0;
}

template <class Codes, class T>
void multiply(const PackedLinearArgs& args, const OpLaunch& launch) {
  const PackedMatrix& m = args.weight;
  const PackedView view(m);
  const T* x = args.x.data<T>();
  const T* bias = args.bias.defined() ? args.bias.data<T>() : nullptr;
  const PackedOutput out{args.y.raw_data(), args.y.stride(0), args.y.dtype() == DType::f32};
  const std::int64_t rows = args.x.size(0);
  const int words = aligned(args.x) ? words_per_group<Codes>(m) : 0;
  const auto blocks = [&](int columns) {
    return static_cast<unsigned>((m.rows() + kWarps * columns - 1) / (kWarps * columns));
  };
  if (words == 0)
    return launch.early(rows, packed_elements_kernel<Codes, T>, blocks(1), kThreads, 0, x, static_cast<int>(rows), view,
                        out, bias);
  const auto run = [&]<int kRows, int kColumns, bool kOffsets>() {
    launch.early(kRows, packed_linear_kernel<Codes, kRows, kColumns, kOffsets, false, T>, blocks(kColumns), kThreads, 0,
                 x, view, words, out, bias, GatedActivation::silu);
  };
  const auto columns = [&]<int kRows, bool kOffsets>() {
    // Large weights: two rows per warp share reads of x. Small ones: more warps.
    constexpr std::int64_t kManyRows = 4096;
    if constexpr (kRows == 1)
      if (m.rows() >= kManyRows) return run.template operator()<kRows, 2, kOffsets>();
    run.template operator()<kRows, 1, kOffsets>();
  };
  const auto start = [&]<int kRows>() {
    if (m.offsets().defined())
      columns.template operator()<kRows, true>();
    else
      columns.template operator()<kRows, false>();
  };
  switch (rows) {
    case 1: return start.template operator()<1>();
    case 2: return start.template operator()<2>();
    default: return start.template operator()<4>();
  }
}

template <class Codes, class T>
void multiply_gated(const GatedPackedLinearArgs& args, const OpLaunch& launch) {
  const PackedMatrix& m = args.weight;
  const T* bias = args.bias.defined() ? args.bias.data<T>() : nullptr;
  const auto blocks = static_cast<unsigned>((args.y.size(1) + kWarps - 1) / kWarps);
  const auto run = [&]<bool kOffsets>() {
    launch.early(1, packed_linear_kernel<Codes, 1, 2, kOffsets, true, T>, blocks, kThreads, 0, args.x.data<T>(),
                 PackedView(m), words_per_group<Codes>(m), PackedOutput{args.y.raw_data(), args.y.stride(0), false},
                 bias, args.activation);
  };
  m.offsets().defined() ? run.template operator()<true>() : run.template operator()<false>();
}

void gated_packed_linear_cuda(const GatedPackedLinearArgs& args) {
  if (small_m_gemm_supports(args.x, args.weight))
    return small_m_gemm({.x = args.x, .weight = args.weight, .y = args.y, .bias = args.bias}, args.activation);
  const PackedMatrix& m = args.weight;
  const OpLaunch launch("gated_packed_linear", {&args.x, &m.codes(), &m.scales(), &m.offsets(), &args.y, &args.bias});
  dispatch_codes(m.codes().dtype(), "gated_packed_linear", [&]<class Codes>() {
    dispatch<float, bfloat16>(args.x.dtype(), "gated_packed_linear",
                              [&]<class T>() { multiply_gated<Codes, T>(args, launch); });
  });
}

void packed_linear_cuda(const PackedLinearArgs& args) {
  const std::int64_t rows = args.x.size(0);
  if (small_m_gemm_supports(args.x, args.weight)) return small_m_gemm(args, std::nullopt);
  if (rows > 1 && packed_gemm_supports(args.x, args.weight)) return packed_gemm(args);
  if (rows > kPackedRows) return packed_linear_in_parts(args);
  if (rows == 3) {  // no kernel of its own
    packed_linear_cuda({args.x.narrow(0, 0, 2), args.weight, args.y.narrow(0, 0, 2), args.bias});
    return packed_linear_cuda({args.x.narrow(0, 2, 1), args.weight, args.y.narrow(0, 2, 1), args.bias});
  }
  const PackedMatrix& m = args.weight;
  const OpLaunch launch("packed_linear", {&args.x, &m.codes(), &m.scales(), &m.offsets(), &args.y, &args.bias});
  dispatch_codes(m.codes().dtype(), "packed_linear", [&]<class Codes>() {
    dispatch<float, bfloat16>(args.x.dtype(), "packed_linear", [&]<class T>() { multiply<Codes, T>(args, launch); });
  });
}

void unpack_cuda(const UnpackArgs& args) {
  const PackedMatrix& m = args.weight;
  const OpLaunch launch("unpack", {&m.codes(), &m.scales(), &m.offsets(), &args.out});
  const auto blocks = static_cast<unsigned>(m.rows());
  dispatch_codes(m.codes().dtype(), "unpack", [&]<class Codes>() {
    dispatch<float, bfloat16>(args.out.dtype(), "unpack", [&]<class T>() {
      if (words_per_group<Codes>(m) > 0 && aligned(args.out))
        launch(unpack_words_kernel<Codes, T>, blocks, kThreads, 0, PackedView(m), args.out.data<T>());
      else
        launch(unpack_elements_kernel<Codes, T>, blocks, kThreads, 0, PackedView(m), args.out.data<T>());
    });
  });
}

QUENCH_CUDA_KERNEL(packed_linear_slot, packed_linear_cuda);
QUENCH_CUDA_KERNEL(gated_packed_linear_slot, gated_packed_linear_cuda);
QUENCH_CUDA_KERNEL(unpack_slot, unpack_cuda);

}  // namespace
}  // namespace quench::cuda
