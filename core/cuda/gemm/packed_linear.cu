// Products with packed weights for few rows, and their values. A warp takes a row of the weight: its codes are read
// once and become f32 in registers, sums are f32.

#include "core/cuda/common/early_start.cuh"
#include "core/cuda/common/launch.h"
#include "core/cuda/common/reduce.cuh"
#include "core/cuda/common/vector.cuh"
#include "core/number/float4.h"
#include "core/number/float8.h"
#include "core/ops/packed_linear.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;

// An integer from 0 to 2^23 - 1 without a conversion: it becomes the mantissa of a float between 2^23 and 2^24.
__device__ inline float small_to_float(std::uint32_t value) {
  return __uint_as_float(0x4B000000u | value) - 8388608.0f;
}

struct Int4 {
  static constexpr int kPerByte = 2;
  __device__ static float decode(std::uint32_t code) { return small_to_float((code & 15u) ^ 8u) - 8.0f; }
};
struct Int8 {
  static constexpr int kPerByte = 1;
  __device__ static float decode(std::uint32_t code) { return small_to_float((code & 255u) ^ 128u) - 128.0f; }
};
struct Float4 {
  static constexpr int kPerByte = 2;
  __device__ static float decode(std::uint32_t code) { return E2m1::decode(static_cast<std::uint8_t>(code & 15u)); }
};
struct Float8 {
  static constexpr int kPerByte = 1;
  __device__ static float decode(std::uint32_t code) { return E4m3::decode(static_cast<std::uint8_t>(code)); }
};

__device__ inline float scale_of(float16 scale) {
  return static_cast<float>(scale);
}
template <class S>
__device__ inline float scale_of(S scale) {
  return to_float(scale);
}

template <class S>
struct PackedView {
  const std::uint8_t* codes;
  const S* scales;
  const float* offsets;  // or null
  std::int64_t rows, columns, row_bytes, group, groups;
};

template <class S>
PackedView<S> view_of(const PackedMatrix& m) {
  return {static_cast<const std::uint8_t*>(m.codes().raw_data()),
          static_cast<const S*>(m.scales().raw_data()),
          m.offsets().defined() ? m.offsets().data<float>() : nullptr,
          m.rows(),
          m.columns(),
          m.columns() * bit_width(m.codes().dtype()) / 8,
          m.group_size(),
          m.groups()};
}

// Sums of kBytes bytes of codes, which share a scale, beside rows of x.
template <class Codes, int kRows, int kBytes, class T>
__device__ void add_products(const std::uint8_t* codes, const T* x, std::int64_t x_stride, float scale, float offset,
                             float (&sums)[kRows]) {
  constexpr int kCount = kBytes * Codes::kPerByte;
  float w[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    w[i] = Codes::decode(Codes::kPerByte == 2 ? static_cast<std::uint32_t>(codes[i / 2]) >> (i % 2 * 4) : codes[i]);
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    float part = 0.0f, total = 0.0f;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float value = to_float(x[row * x_stride + i]);
      part = fmaf(w[i], value, part);
      total += value;
    }
    sums[row] = fmaf(scale, part, fmaf(offset, total, sums[row]));
  }
}

template <class Codes, int kRows, int kBytes, class T, class Y, class S>
__global__ __launch_bounds__(kThreads) void packed_linear_kernel(const T* x, PackedView<S> w, Y* y,
                                                                 std::int64_t y_stride, const T* bias) {
  start_early();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t column = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (column >= w.rows) return;
  const std::uint8_t* codes = w.codes + column * w.row_bytes;
  float sums[kRows] = {};
  for (std::int64_t at = std::int64_t{lane} * kBytes; at < w.row_bytes; at += 32 * kBytes) {
    alignas(16) std::uint8_t piece[kBytes];
    if constexpr (kBytes == 16)
      *reinterpret_cast<int4*>(piece) = __ldcs(reinterpret_cast<const int4*>(codes + at));
    else
      for (int i = 0; i < kBytes; ++i) piece[i] = codes[at + i];
    const std::int64_t k = at * Codes::kPerByte, group = column * w.groups + k / w.group;
    add_products<Codes, kRows, kBytes>(piece, x + k, w.columns, scale_of(w.scales[group]),
                                       w.offsets != nullptr ? w.offsets[group] : 0.0f, sums);
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const float sum = warp_reduce(sums[row], Sum());
    if (lane == 0) y[row * y_stride + column] = from_float<Y>(sum + (bias != nullptr ? to_float(bias[column]) : 0.0f));
  }
}

// Values of a row, two at a time.
template <class Codes, class T, class S>
__global__ __launch_bounds__(kThreads) void unpack_kernel(PackedView<S> w, T* out) {
  const std::int64_t row = blockIdx.x;
  for (std::int64_t k = threadIdx.x; k < w.columns; k += kThreads) {
    const std::uint32_t byte = w.codes[row * w.row_bytes + k / Codes::kPerByte];
    const float value = Codes::decode(Codes::kPerByte == 2 ? byte >> (k % 2 * 4) : byte);
    const std::int64_t group = row * w.groups + k / w.group;
    const float product = __fmul_rn(value, scale_of(w.scales[group]));
    out[row * w.columns + k] = from_float<T>(w.offsets != nullptr ? __fadd_rn(product, w.offsets[group]) : product);
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

// Whether 16 bytes of codes at a time lie in one group and on an aligned address.
bool wide_pieces(const PackedMatrix& m) {
  const std::int64_t per_byte = 8 / bit_width(m.codes().dtype());
  const bool one_group = m.groups() == 1 || m.group_size() % (16 * per_byte) == 0;
  return one_group && m.columns() % (16 * per_byte) == 0 &&
         reinterpret_cast<std::uintptr_t>(m.codes().raw_data()) % 16 == 0;
}

void packed_linear_cuda(const PackedLinearArgs& args) {
  const PackedMatrix& m = args.weight;
  const OpLaunch launch("packed_linear", {&args.x, &m.codes(), &m.scales(), &m.offsets(), &args.y, &args.bias});
  const auto blocks = static_cast<unsigned>((m.rows() + kWarps - 1) / kWarps);
  dispatch_codes(m.codes().dtype(), "packed_linear", [&]<class Codes>() {
    dispatch<float, bfloat16, float16>(m.scales().dtype(), "packed_linear", [&]<class S>() {
      const auto run = [&]<class T, class Y>() {
        const T* bias = args.bias.defined() ? args.bias.data<T>() : nullptr;
        const auto start = [&]<int kRows, int kBytes>() {
          launch.early(kRows, packed_linear_kernel<Codes, kRows, kBytes, T, Y, S>, blocks, kThreads, 0,
                       args.x.data<T>(), view_of<S>(m), args.y.data<Y>(), args.y.stride(0), bias);
        };
        const auto rows = [&]<int kBytes>() {
          switch (args.x.size(0)) {
            case 1: return start.template operator()<1, kBytes>();
            case 2: return start.template operator()<2, kBytes>();
            case 3: return start.template operator()<3, kBytes>();
            default: return start.template operator()<4, kBytes>();
          }
        };
        if (wide_pieces(m))
          rows.template operator()<16>();
        else
          rows.template operator()<1>();
      };
      if (args.x.dtype() == DType::f32) return run.template operator()<float, float>();
      if (args.y.dtype() == DType::f32) return run.template operator()<bfloat16, float>();
      return run.template operator()<bfloat16, bfloat16>();
    });
  });
}

void unpack_cuda(const UnpackArgs& args) {
  const PackedMatrix& m = args.weight;
  const OpLaunch launch("unpack", {&m.codes(), &m.scales(), &m.offsets(), &args.out});
  dispatch_codes(m.codes().dtype(), "unpack", [&]<class Codes>() {
    dispatch<float, bfloat16, float16>(m.scales().dtype(), "unpack", [&]<class S>() {
      dispatch<float, bfloat16>(args.out.dtype(), "unpack", [&]<class T>() {
        launch(unpack_kernel<Codes, T, S>, static_cast<unsigned>(m.rows()), kThreads, 0, view_of<S>(m),
               args.out.data<T>());
      });
    });
  });
}

QUENCH_CUDA_KERNEL(packed_linear_slot, packed_linear_cuda);
QUENCH_CUDA_KERNEL(unpack_slot, unpack_cuda);

}  // namespace
}  // namespace quench::cuda
