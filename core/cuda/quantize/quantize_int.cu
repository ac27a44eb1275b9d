// Integer casts by groups of the last axis (core/ops/quantize/quantize_int.h).

#include "core/ops/quantize/quantize_int.h"

#include "core/cuda/common/reduce.cuh"
#include "core/cuda/quantize/quantize_common.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// Smallest and largest value of a group; NaN stays.
struct Range {
  float smallest, largest;
};
struct Widen {
  __device__ Range operator()(Range a, Range b) const {
    return {a.smallest < b.smallest || a.smallest != a.smallest ? a.smallest : b.smallest,
            a.largest > b.largest || a.largest != a.largest ? a.largest : b.largest};
  }
};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <int kLanes>
__device__ Range exchange(Range range) {
#pragma unroll
  for (int offset = 1; offset < kLanes; offset *= 2) {
    const Range other{__shfl_xor_sync(0xFFFFFFFFu, range.smallest, offset),
                      __shfl_xor_sync(0xFFFFFFFFu, range.largest, offset)};
    range = Widen()(range, other);
  }
  return range;
}

__device__ Range range_of(const Piece& piece, int count) {
  Range range{kInfinity, -kInfinity};
#pragma unroll
  for (int i = 0; i < kPiece; ++i)
    if (i < count) range = Widen()(range, {piece[i], piece[i]});
  return range;
}

struct Scheme {
  IntMapping mapping;
  int bits;
  DType stored;

  explicit Scheme(const IntQuantOptions& options)
      : mapping(options.mapping), bits(options.bits), stored(options.scale_dtype.value_or(DType::f32)) {}
  template <class T>
  __device__ IntParameters choose(Range range) const {
    return int_parameters<T>(range.smallest, range.largest, mapping, bits, stored, [](float x) { return rintf(x); });
  }
};

// The conversion of one group's elements.
struct Converter {
  float scale, reciprocal, zero_point, lowest, highest, bottom;
  bool floats;

  __device__ Converter(const IntParameters& p, const Scheme& scheme)
      : scale(p.scale),
        reciprocal(1.0f / p.scale),
        zero_point(p.zero_point),
        lowest(static_cast<float>(int_range(scheme.bits).lowest)),
        highest(static_cast<float>(int_range(scheme.bits).highest)),
        bottom(p.zero_point + lowest * p.scale),
        floats(scheme.mapping == IntMapping::float_zero_point) {}

  // Rounded, not yet clamped. The sum turns -0 into 0.
  __device__ float rounded(float x) const {
    return floats ? rintf((x - bottom) / scale) + lowest : rintf(x * reciprocal) + zero_point;
  }
  __device__ float clamped(float code) const { return code < lowest ? lowest : code > highest ? highest : code; }
  __device__ float value(float code) const { return floats ? code * scale + zero_point : (code - zero_point) * scale; }
  __device__ bool in_range(float code) const { return code >= lowest && code <= highest; }
};

struct Rows {
  std::int64_t rows, columns, group, groups;  // groups of a row

  Rows(const Tensor& x, const IntQuantOptions& options)
      : rows(x.numel() / x.size(-1)),
        columns(x.size(-1)),
        group(options.group_size == 0 ? columns : options.group_size),
        groups(columns / group) {}
  [[nodiscard]] bool wide(const void* pointer) const { return columns % kPiece == 0 && aligned(pointer); }
};

// Scales, given or made.
struct Parameters {
  const float* scales;
  const float* zero_points;  // null: 0
  __device__ IntParameters operator[](std::int64_t at) const {
    return {scales[at], zero_points != nullptr ? zero_points[at] : 0.0f};
  }
};
Parameters parameters_of(const Tensor& scales, const Tensor& zero_points) {
  return {scales.data<float>(), zero_points.defined() ? zero_points.data<float>() : nullptr};
}

// A warp a group. Reads x, writes a scale and, if wanted, a zero point.
template <class T>
__global__ __launch_bounds__(kThreads) void scales_kernel(const T* x, float* scales, float* zero_points,
                                                          std::int64_t count, std::int64_t group, Scheme scheme) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t step = std::int64_t{gridDim.x} * kWarps;
  for (std::int64_t g = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; g < count; g += step) {
    Range range{kInfinity, -kInfinity};
    const bool wide = group % kPiece == 0 && reinterpret_cast<std::uintptr_t>(x) % 16 == 0;
    for (std::int64_t i = std::int64_t{lane} * kPiece; i < group; i += 32 * kPiece) {
      const int rest = static_cast<int>(min(static_cast<long long>(group - i), static_cast<long long>(kPiece)));
      range = Widen()(range, range_of(load_piece(x + g * group + i, wide, rest), rest));
    }
    range = exchange<32>(range);
    if (lane != 0) continue;
    const IntParameters p = scheme.template choose<T>(range);
    scales[g] = p.scale;
    if (zero_points != nullptr) zero_points[g] = p.zero_point;
  }
}

template <class T>
void choose_scales(const OpLaunch& launch, const Tensor& x, const Tensor& scales, const Tensor& zero_points,
                   const IntQuantOptions& options) {
  const Rows shape(x, options);
  const std::int64_t count = shape.rows * shape.groups;
  launch(scales_kernel<T>, dim3(strided_grid(launch.device(), count, kWarps, 8, 4)), kThreads, 0, x.data<T>(),
         scales.data<float>(), zero_points.defined() ? zero_points.data<float>() : nullptr, count, shape.group,
         Scheme(options));
}

// Eight elements of a row a thread, a mask byte with them. body(converter of an element's group, element, number of the
// element) is called for each; its results are of type Out.
template <class In, class Out, class Body>
__global__ __launch_bounds__(kThreads) void apply_kernel(const In* x, Out* out, std::uint8_t* mask, Rows shape,
                                                         Parameters parameters, Scheme scheme, Body body) {
  const std::int64_t pieces = (shape.columns + kPiece - 1) / kPiece, count = shape.rows * pieces;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t p = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; p < count; p += step) {
    const std::int64_t row = p / pieces, first = p % pieces * kPiece;
    std::int64_t group = first / shape.group, end = (group + 1) * shape.group;
    Converter convert(parameters[row * shape.groups + group], scheme);
    std::uint32_t bits = 0;
    for (int i = 0; i < kPiece && first + i < shape.columns; ++i) {
      if (first + i == end) {
        end += shape.group;
        convert = Converter(parameters[row * shape.groups + ++group], scheme);
      }
      const std::int64_t at = row * shape.columns + first + i;
      bool inside = true;
      out[at] = body(convert, x[at], inside);
      bits |= inside ? 1u << i : 0u;
    }
    if (mask != nullptr) mask[p] = static_cast<std::uint8_t>(bits);
  }
}

template <class T>
struct ToCode {
  __device__ std::int8_t operator()(const Converter& convert, T x, bool&) const {
    const float code = convert.clamped(convert.rounded(to_float(x)));
    return static_cast<std::int8_t>(code != code ? 0.0f : code);  // NaN, which no integer stands for: its scale is NaN
  }
};
template <class T>
struct ToValue {
  __device__ T operator()(const Converter& convert, std::int8_t code, bool&) const {
    return from_float<T>(convert.value(static_cast<float>(code)));
  }
};
template <class T>
struct ToFake {
  __device__ T operator()(const Converter& convert, T x, bool& inside) const {
    const float code = convert.rounded(to_float(x));
    inside = convert.in_range(code);
    return from_float<T>(convert.value(convert.clamped(code)));
  }
};

template <class In, class Out, class Body>
void apply(const OpLaunch& launch, const Tensor& x, const Tensor& out, std::uint8_t* mask, const Tensor& scales,
           const Tensor& zero_points, const IntQuantOptions& options, Body body) {
  const Rows shape(x, options);
  const std::int64_t count = shape.rows * ((shape.columns + kPiece - 1) / kPiece);
  launch(apply_kernel<In, Out, Body>, dim3(strided_grid(launch.device(), count, kThreads, 8, 4)), kThreads, 0,
         x.data<In>(), out.data<Out>(), mask, shape, parameters_of(scales, zero_points), Scheme(options), body);
}

// Groups of kLanes * 8 elements: neighbouring threads share a group, each has eight elements of it and a mask byte.
// Reads x once, writes out and mask.
template <class T, int kLanes>
__global__ __launch_bounds__(kThreads) void fake_groups_kernel(const T* x, T* out, std::uint8_t* mask,
                                                               std::int64_t pieces, Scheme scheme) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  // The bound is the same for a whole warp: its lanes take part in the exchange together.
  for (std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x / 32 * 32; first < pieces;
       first += step) {
    const std::int64_t p = first + threadIdx.x % 32;
    const bool active = p < pieces;
    Piece piece = load_piece(x + (active ? p : 0) * kPiece, true);
    const Range range = exchange<kLanes>(range_of(piece, kPiece));
    if (!active) continue;
    const Converter convert(scheme.template choose<T>(range), scheme);
    std::uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      const float code = convert.rounded(piece[i]);
      bits |= convert.in_range(code) ? 1u << i : 0u;
      piece[i] = convert.value(convert.clamped(code));
    }
    store_piece(out + p * kPiece, piece, true);
    if (mask != nullptr) mask[p] = static_cast<std::uint8_t>(bits);
  }
}

template <class T, int kLanes>
void fake_groups(const OpLaunch& launch, const FakeQuantizeIntArgs& args, std::uint8_t* mask) {
  const std::int64_t pieces = args.x.numel() / kPiece;
  launch(fake_groups_kernel<T, kLanes>, dim3(strided_grid(launch.device(), pieces, kThreads, 8, 4)), kThreads, 0,
         args.x.data<T>(), args.out.data<T>(), mask, pieces, Scheme(args.options));
}

template <class T>
void fake_any(const OpLaunch& launch, const FakeQuantizeIntArgs& args, std::uint8_t* mask) {
  Tensor scales = args.scales, zero_points = args.zero_points;
  if (!scales.defined()) {
    const MemoryScope scope(MemoryCategory::workspace);
    const Rows shape(args.x, args.options);
    scales = Tensor::empty({shape.rows * shape.groups}, DType::f32, args.x.device());
    zero_points = Tensor::empty_like(scales);
    choose_scales<T>(launch, args.x, scales, zero_points, args.options);
  }
  apply<T, T>(launch, args.x, args.out, mask, scales, zero_points, args.options, ToFake<T>());
}

void int_scales_cuda(const IntScalesArgs& args) {
  const OpLaunch launch("int_scales", {&args.x, &args.scales, &args.zero_points});
  dispatch<float, bfloat16>(args.x.dtype(), "int_scales", [&]<class T>() {
    choose_scales<T>(launch, args.x, args.scales, args.zero_points, args.options);
  });
}

void int_cast_cuda(const IntCastArgs& args) {
  const OpLaunch launch("int_cast", {&args.x, &args.scales, &args.zero_points, &args.codes});
  dispatch<float, bfloat16>(args.x.dtype(), "int_cast", [&]<class T>() {
    apply<T, std::int8_t>(launch, args.x, args.codes, nullptr, args.scales, args.zero_points, args.options,
                          ToCode<T>());
  });
}

void int_dequantize_cuda(const IntDequantizeArgs& args) {
  const OpLaunch launch("int_dequantize", {&args.codes, &args.scales, &args.zero_points, &args.out});
  dispatch<float, bfloat16>(args.out.dtype(), "int_dequantize", [&]<class T>() {
    apply<std::int8_t, T>(launch, args.codes, args.out, nullptr, args.scales, args.zero_points, args.options,
                          ToValue<T>());
  });
}

void fake_quantize_int_cuda(const FakeQuantizeIntArgs& args) {
  const OpLaunch launch("fake_quantize_int", {&args.x, &args.out, &args.mask, &args.scales, &args.zero_points});
  std::uint8_t* mask = args.mask.defined() ? args.mask.data<std::uint8_t>() : nullptr;
  const Rows shape(args.x, args.options);
  const bool whole = !args.scales.defined() && shape.wide(args.x.raw_data()) && shape.wide(args.out.raw_data());
  dispatch<float, bfloat16>(args.x.dtype(), "fake_quantize_int", [&]<class T>() {
    switch (whole ? shape.group : 0) {
      case 8: return fake_groups<T, 1>(launch, args, mask);
      case 16: return fake_groups<T, 2>(launch, args, mask);
      case 32: return fake_groups<T, 4>(launch, args, mask);
      case 64: return fake_groups<T, 8>(launch, args, mask);
      case 128: return fake_groups<T, 16>(launch, args, mask);
      case 256: return fake_groups<T, 32>(launch, args, mask);
      default: return fake_any<T>(launch, args, mask);
    }
  });
}

// A byte of the mask a thread; writes only where it has zeros.
template <class T>
__global__ __launch_bounds__(kThreads) void zero_masked_kernel(T* x, const std::uint8_t* mask, std::int64_t rows,
                                                               std::int64_t columns) {
  const std::int64_t bytes = (columns + 7) / 8, step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t b = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; b < rows * bytes; b += step) {
    const std::uint32_t bits = mask[b];
    if (bits == 0xFFu) continue;
    const std::int64_t row = b / bytes, first = b % bytes * 8;
    for (int i = 0; i < 8 && first + i < columns; ++i)
      if ((bits >> i & 1u) == 0) x[row * columns + first + i] = from_float<T>(0.0f);
  }
}

void zero_masked_cuda(const ZeroMaskedArgs& args) {
  const OpLaunch launch("zero_masked", {&args.x, &args.mask});
  const std::int64_t columns = args.x.size(-1), rows = args.x.numel() / columns;
  dispatch<float, bfloat16>(args.x.dtype(), "zero_masked", [&]<class T>() {
    launch(zero_masked_kernel<T>, dim3(strided_grid(launch.device(), rows * ((columns + 7) / 8), kThreads, 8, 4)),
           kThreads, 0, args.x.data<T>(), args.mask.data<std::uint8_t>(), rows, columns);
  });
}

QUENCH_CUDA_KERNEL(int_scales_slot, int_scales_cuda);
QUENCH_CUDA_KERNEL(int_cast_slot, int_cast_cuda);
QUENCH_CUDA_KERNEL(int_dequantize_slot, int_dequantize_cuda);
QUENCH_CUDA_KERNEL(fake_quantize_int_slot, fake_quantize_int_cuda);
QUENCH_CUDA_KERNEL(zero_masked_slot, zero_masked_cuda);

}  // namespace
}  // namespace quench::cuda
