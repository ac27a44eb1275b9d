// Integer casts by groups of the last axis.

#include "core/cuda/quantize/int_scheme.cuh"
#include "core/cuda/quantize/row_pieces.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

struct IntRows {
  std::int64_t rows, columns, group, groups;  // per row

  IntRows(const Tensor& x, const IntQuantOptions& options)
      : rows(x.numel() / x.size(-1)),
        columns(x.size(-1)),
        group(options.group_size == 0 ? columns : options.group_size),
        groups(columns / group) {}
  // Groups and mask bytes are whole vectors.
  [[nodiscard]] bool in_pieces() const { return group % kPiece == 0; }
};

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

// One warp per group.
template <class T>
__global__ __launch_bounds__(kThreads) void scales_kernel(const T* x, float* scales, float* zero_points,
                                                          std::int64_t count, std::int64_t group, bool wide,
                                                          IntScheme scheme) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t step = std::int64_t{gridDim.x} * kWarps;
  for (std::int64_t g = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; g < count; g += step) {
    Extremes<T> own = Extremes<T>::none();
    const T* from = x + g * group;
    const std::int64_t whole = group / kPiece * kPiece;
#pragma unroll 4
    for (std::int64_t i = std::int64_t{lane} * kPiece; i < whole; i += 32 * kPiece)
      own.widen(load_packed_piece(from + i, wide));
    if (whole + lane < group) own.widen(Extremes<T>::of(from[whole + lane]));
    own = over_lanes<32>(own);
    if (lane != 0) continue;
    const IntParameters p = scheme.choose(own);
    scales[g] = p.scale;
    if (zero_points != nullptr) zero_points[g] = p.zero_point;
  }
}

// IntMapping::binary, one warp per group.
template <class T>
__global__ __launch_bounds__(kThreads) void mean_scales_kernel(const T* x, float* scales, std::int64_t count,
                                                               std::int64_t group, bool wide, DType stored) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t step = std::int64_t{gridDim.x} * kWarps;
  for (std::int64_t g = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; g < count; g += step) {
    const T* from = x + g * group;
    const std::int64_t whole = group / kPiece * kPiece;
    const bool has_rest = whole + lane < group;
    Extremes<T> own = Extremes<T>::none();
    for (std::int64_t i = std::int64_t{lane} * kPiece; i < whole; i += 32 * kPiece)
      own.widen(load_packed_piece(from + i, wide));
    if (has_rest) own.widen(Extremes<T>::of(from[whole + lane]));
    own = over_lanes<32>(own);
    const float smallest = own.smallest(), largest = own.largest(), amax = greater_or_nan(-smallest, largest);
    const FixedMagnitudes fixed(amax);
    long long sum = 0;
    for (std::int64_t i = std::int64_t{lane} * kPiece; i < whole; i += 32 * kPiece) {
      const Piece piece = unpack(load_packed_piece(from + i, wide));
#pragma unroll
      for (int k = 0; k < kPiece; ++k) sum += fixed(piece[k]);
    }
    if (has_rest) sum += fixed(float(from[whole + lane]));
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
    if (lane == 0) scales[g] = binary_scale<T>(fixed.mean(sum, group), amax, stored);
  }
}

template <class T>
void choose_scales(const OpLaunch& launch, const Tensor& x, const Tensor& scales, const Tensor& zero_points,
                   const IntQuantOptions& options) {
  const IntRows shape(x, options);
  const std::int64_t count = shape.rows * shape.groups;
  const dim3 grid(strided_grid(launch.device(), count, kWarps, 8, 4));
  const bool wide = shape.in_pieces() && aligned(x.raw_data());
  if (options.mapping == IntMapping::binary)
    return launch(mean_scales_kernel<T>, grid, kThreads, 0, x.data<T>(), scales.data<float>(), count, shape.group, wide,
                  options.scale_dtype.value_or(DType::f32));
  launch(scales_kernel<T>, grid, kThreads, 0, x.data<T>(), scales.data<float>(),
         zero_points.defined() ? zero_points.data<float>() : nullptr, count, shape.group, wide, IntScheme(options));
}

template <class In>
__device__ Piece load_elements(const In* from, bool wide, int count = kPiece) {
  if constexpr (sizeof(In) > 1) {
    return load_piece(from, wide, count);
  } else {
    const uint2 codes = load_codes(reinterpret_cast<const std::uint8_t*>(from), wide, count);
    Piece piece;
#pragma unroll
    for (int i = 0; i < kPiece; ++i) piece[i] = static_cast<float>(static_cast<std::int8_t>(code_at(codes, i)));
    return piece;
  }
}
template <class Out>
__device__ void store_elements(Out* to, const Piece& piece, bool wide, int count = kPiece) {
  if constexpr (sizeof(Out) > 1) {
    store_piece(to, piece, wide, count);
  } else {
    std::uint32_t words[2] = {};
#pragma unroll
    for (int i = 0; i < kPiece; ++i)
      words[i / 4] |= (static_cast<std::uint32_t>(static_cast<int>(piece[i])) & 0xFFu) << (i % 4 * 8);
    store_codes(reinterpret_cast<std::uint8_t*>(to), make_uint2(words[0], words[1]), wide, count);
  }
}
template <class Element>
bool elements_are_wide(const Element* pointer) {
  return aligned(pointer, kPiece * std::min<std::size_t>(sizeof(Element), 2));
}

constexpr int kInFlight = 2;  // per thread

// Groups of whole vectors.
template <class In, class Out, class Body, bool kFewLevels>
__global__ __launch_bounds__(kThreads) void apply_pieces_kernel(const In* x, Out* out, std::uint8_t* mask,
                                                                std::int64_t count, std::int64_t group_pieces,
                                                                Parameters parameters, IntScheme scheme) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  const bool narrow = count <= std::int64_t{0xFFFFFFFF};  // no 64-bit division, as expensive as the rest
  for (std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; first < count;
       first += kInFlight * step) {
    Piece pieces[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k)
      if (const std::int64_t p = first + k * step; p < count) pieces[k] = load_elements(x + p * kPiece, true);
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const std::int64_t p = first + k * step;
      if (p >= count) break;
      const std::int64_t group =
          narrow ? static_cast<std::uint32_t>(p) / static_cast<std::uint32_t>(group_pieces) : p / group_pieces;
      const std::uint32_t bits = apply_to<Body, kFewLevels>(IntConverter(parameters[group], scheme), pieces[k]);
      store_elements(out + p * kPiece, pieces[k], true);
      if (mask != nullptr) mask[p] = static_cast<std::uint8_t>(bits);
    }
  }
}

// Any group size and alignment: eight elements of a row and a mask byte per thread.
template <class In, class Out, class Body, bool kFewLevels>
__global__ __launch_bounds__(kThreads) void apply_any_kernel(const In* x, Out* out, std::uint8_t* mask, IntRows shape,
                                                             Parameters parameters, IntScheme scheme) {
  const std::int64_t pieces = (shape.columns + kPiece - 1) / kPiece, count = shape.rows * pieces;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t p = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; p < count; p += step) {
    const std::int64_t row = p / pieces, first = p % pieces * kPiece, at = row * shape.columns + first;
    const auto here = static_cast<int>(min(std::int64_t{kPiece}, shape.columns - first));
    std::int64_t group = first / shape.group, end = (group + 1) * shape.group;
    IntConverter convert(parameters[row * shape.groups + group], scheme);
    Piece piece = load_elements(x + at, false, here);
    std::uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      if (i >= here) break;
      if (first + i == end) {
        end += shape.group;
        convert = IntConverter(parameters[row * shape.groups + ++group], scheme);
      }
      bits |= apply_to<Body, kFewLevels>(convert, piece[i]) ? 1u << i : 0u;
    }
    store_elements(out + at, piece, false, here);
    if (mask != nullptr) mask[p] = static_cast<std::uint8_t>(bits);
  }
}

template <class In, class Out, class Body, bool kFewLevels>
void launch_apply(const OpLaunch& launch, const Tensor& x, const Tensor& out, std::uint8_t* mask,
                  const Parameters& parameters, const IntQuantOptions& options) {
  const IntRows shape(x, options);
  const In* from = x.data<In>();
  Out* to = out.data<Out>();
  if (shape.in_pieces() && elements_are_wide(from) && elements_are_wide(to)) {
    const std::int64_t count = x.numel() / kPiece;
    launch(apply_pieces_kernel<In, Out, Body, kFewLevels>,
           dim3(strided_grid(launch.device(), count, kThreads * kInFlight, 8, 4)), kThreads, 0, from, to, mask, count,
           shape.group / kPiece, parameters, IntScheme(options));
    return;
  }
  const std::int64_t count = shape.rows * ((shape.columns + kPiece - 1) / kPiece);
  launch(apply_any_kernel<In, Out, Body, kFewLevels>, dim3(strided_grid(launch.device(), count, kThreads, 8, 4)),
         kThreads, 0, from, to, mask, shape, parameters, IntScheme(options));
}

template <class In, class Out, class Body>
void apply(const OpLaunch& launch, const Tensor& x, const Tensor& out, std::uint8_t* mask, const Tensor& scales,
           const Tensor& zero_points, const IntQuantOptions& options) {
  const Parameters parameters = parameters_of(scales, zero_points);
  // Codes times scales alike.
  if constexpr (!std::is_same_v<Body, ToValue>)
    if (has_few_levels(options.mapping))
      return launch_apply<In, Out, Body, true>(launch, x, out, mask, parameters, options);
  launch_apply<In, Out, Body, false>(launch, x, out, mask, parameters, options);
}

// Groups of kLanes adjacent threads, one vector and mask byte each, kKept groups at a time.
template <class T, int kLanes>
__global__ __launch_bounds__(kThreads) void fake_groups_kernel(const T* x, T* out, std::uint8_t* mask,
                                                               std::int64_t pieces, IntScheme scheme) {
  // Scales cost as much as a vector's conversion: each thread computes those of one shared group.
  constexpr int kKept = kLanes < 4 ? kLanes : 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t step = std::int64_t{gridDim.x} * kWarps * 32 * kKept;
  // Warp-uniform trip count for the shuffles.
  for (std::int64_t first = (std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32) * 32 * kKept; first < pieces;
       first += step) {
    PackedPiece<T> kept[kKept] = {};
#pragma unroll
    for (int k = 0; k < kKept; ++k)
      if (const std::int64_t p = first + k * 32 + lane; p < pieces) kept[k] = load_packed_piece(x + p * kPiece, true);
    Extremes<T> own;
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      Extremes<T> of_piece = Extremes<T>::none();
      of_piece.widen(kept[k]);
      of_piece = over_lanes<kLanes>(of_piece);
      if (lane % kKept == k) own = of_piece;
    }
    const IntParameters chosen = scheme.choose(own);
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int from = lane / kKept * kKept + k;
      const IntParameters of_group{__shfl_sync(0xFFFFFFFFu, chosen.scale, from),
                                   __shfl_sync(0xFFFFFFFFu, chosen.zero_point, from)};
      const std::int64_t p = first + k * 32 + lane;
      if (p >= pieces) continue;
      Piece piece = unpack(kept[k]);
      const std::uint32_t bits = apply_to<ToFake, false>(IntConverter(of_group, scheme), piece);
      store_piece(out + p * kPiece, piece, true);
      if (mask != nullptr) mask[p] = static_cast<std::uint8_t>(bits);
    }
  }
}

template <class T, int kLanes>
void fake_groups(const OpLaunch& launch, const FakeQuantizeIntArgs& args, std::uint8_t* mask) {
  const std::int64_t pieces = args.x.numel() / kPiece;
  launch(fake_groups_kernel<T, kLanes>,
         dim3(strided_grid(launch.device(), pieces, kThreads * std::min(kLanes, 4), 8, 4)), kThreads, 0,
         args.x.data<T>(), args.out.data<T>(), mask, pieces, IntScheme(args.options));
}

template <int kRowThreads, class T>
__device__ IntParameters parameters_of_row(Extremes<T> own, const IntScheme& scheme) {
  own = over_lanes<32>(own);
  if constexpr (kRowThreads == 32) {
    return scheme.choose(own);
  } else {
    constexpr int kRowWarps = kRowThreads / 32;
    __shared__ Extremes<T> of_warps[kRowWarps];
    __shared__ IntParameters chosen;
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    if (lane == 0) of_warps[warp] = own;
    __syncthreads();
    if (warp == 0) {  // redundant in other warps
      const IntParameters p = scheme.choose(over_lanes<kRowWarps>(of_warps[lane % kRowWarps]));
      if (lane == 0) chosen = p;
    }
    __syncthreads();
    return chosen;
  }
}

// One group per row, in registers.
template <class T, int kRowThreads, int kKept>
__global__ __launch_bounds__(kRowBlock<kRowThreads>,
                             kRowBlocks<kRowThreads>) void fake_rows_kernel(const T* x, T* out, std::uint8_t* mask,
                                                                            std::int64_t rows, int columns,
                                                                            IntScheme scheme) {
  const std::int64_t row = row_number<kRowThreads>();
  if (row >= rows) return;  // by whole warps
  RowPieces<T, kRowThreads, kKept> kept;
  kept.load(x + row * columns, columns);
  Extremes<T> own = Extremes<T>::none();
#pragma unroll
  for (int k = 0; k < kKept; ++k)
    if (kept.column(k) < columns) own.widen(kept.pieces[k]);
  const IntConverter convert(parameters_of_row<kRowThreads>(own, scheme), scheme);
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const int column = kept.column(k);
    if (column >= columns) continue;
    Piece piece = unpack(kept.pieces[k]);
    const std::uint32_t bits = apply_to<ToFake, false>(convert, piece);
    const std::int64_t at = row * columns + column;
    store_piece(out + at, piece, true);
    if (mask != nullptr) mask[at / kPiece] = static_cast<std::uint8_t>(bits);
  }
}

// False if no plan holds a group.
template <class T>
bool fake_rows(const OpLaunch& launch, const FakeQuantizeIntArgs& args, std::uint8_t* mask) {
  const std::int64_t group = IntRows(args.x, args.options).group, groups = args.x.numel() / group;
  return with_usual_row_plan<T>(group, [&]<class Plan>() {
    launch(fake_rows_kernel<T, Plan::kThreads, Plan::kKept>, row_grid<Plan>(groups), kRowBlock<Plan::kThreads>, 0,
           args.x.data<T>(), args.out.data<T>(), mask, groups, static_cast<int>(group), IntScheme(args.options));
  });
}

template <class T>
void fake_any(const OpLaunch& launch, const FakeQuantizeIntArgs& args, std::uint8_t* mask) {
  Tensor scales = args.scales, zero_points = args.zero_points;
  if (!scales.defined()) {
    const MemoryScope scope(MemoryCategory::workspace);
    const IntRows shape(args.x, args.options);
    scales = Tensor::empty({shape.rows * shape.groups}, DType::f32, args.x.device());
    if (!has_few_levels(args.options.mapping)) zero_points = Tensor::empty_like(scales);
    choose_scales<T>(launch, args.x, scales, zero_points, args.options);
  }
  apply<T, T, ToFake>(launch, args.x, args.out, mask, scales, zero_points, args.options);
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
    apply<T, std::int8_t, ToCode>(launch, args.x, args.codes, nullptr, args.scales, args.zero_points, args.options);
  });
}

void int_dequantize_cuda(const IntDequantizeArgs& args) {
  const OpLaunch launch("int_dequantize", {&args.codes, &args.scales, &args.zero_points, &args.out});
  dispatch<float, bfloat16>(args.out.dtype(), "int_dequantize", [&]<class T>() {
    apply<std::int8_t, T, ToValue>(launch, args.codes, args.out, nullptr, args.scales, args.zero_points, args.options);
  });
}

void fake_quantize_int_cuda(const FakeQuantizeIntArgs& args) {
  const OpLaunch launch("fake_quantize_int", {&args.x, &args.out, &args.mask, &args.scales, &args.zero_points});
  std::uint8_t* mask = args.mask.defined() ? args.mask.data<std::uint8_t>() : nullptr;
  const IntRows shape(args.x, args.options);
  const bool one_pass = !args.scales.defined() && !has_few_levels(args.options.mapping) && shape.in_pieces() &&
                        aligned(args.x.raw_data()) && aligned(args.out.raw_data());
  dispatch<float, bfloat16>(args.x.dtype(), "fake_quantize_int", [&]<class T>() {
    switch (one_pass ? shape.group : 0) {
      case 8: return fake_groups<T, 1>(launch, args, mask);
      case 16: return fake_groups<T, 2>(launch, args, mask);
      case 32: return fake_groups<T, 4>(launch, args, mask);
      case 64: return fake_groups<T, 8>(launch, args, mask);
      case 128: return fake_groups<T, 16>(launch, args, mask);
      case 256: return fake_groups<T, 32>(launch, args, mask);
      default:
        if (!one_pass || !fake_rows<T>(launch, args, mask)) fake_any<T>(launch, args, mask);
    }
  });
}

QUENCH_CUDA_KERNEL(int_scales_slot, int_scales_cuda);
QUENCH_CUDA_KERNEL(int_cast_slot, int_cast_cuda);
QUENCH_CUDA_KERNEL(int_dequantize_slot, int_dequantize_cuda);
QUENCH_CUDA_KERNEL(fake_quantize_int_slot, fake_quantize_int_cuda);

}  // namespace
}  // namespace quench::cuda
