// Casts to and from the codes of a quantized KV cache.

#include "core/ops/kv_cache/cache_codes.h"

#include "core/cuda/attention/cached_elements.cuh"
#include "core/cuda/common/launch.h"
#include "core/cuda/common/pdl.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

template <class T>
struct AppendParams {
  const T* values;
  const std::int32_t* positions;
  std::uint8_t* codes;
  float* scales;
  std::int64_t vectors, capacity, value_stride, scale_stride;  // vectors: tokens * heads
  int heads, dim;
};

// A warp per vector.
template <class T, class C>
__global__ __launch_bounds__(kThreads) void append_codes_kernel(const __grid_constant__ AppendParams<T> p) {
  pdl_sync();
  const std::int64_t vector = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (vector >= p.vectors) return;
  const int lane = static_cast<int>(threadIdx.x) % 32, head = static_cast<int>(vector % p.heads);
  const std::int64_t token = vector / p.heads, row = p.positions[token];
  if (row < 0 || row >= p.capacity) return;
  const T* x = p.values + token * p.value_stride + std::int64_t{head} * p.dim;
  float* stored = p.scales + row * p.scale_stride + head;
  float scale = 0;
  if (p.scale_stride > 0) {
    std::uint32_t most = 0;
    for (int d = lane; d < p.dim; d += 32) most = max(most, __float_as_uint(to_float(x[d])) & kF32MagnitudeMask);
    scale = cache_scale<CodeElement<C>>(__uint_as_float(warp_largest(most)));
    if (lane == 0) *stored = scale;
  } else {
    scale = *stored;
  }
  std::uint8_t* out = p.codes + (row * p.heads + head) * p.dim;
  for (int d = lane; d < p.dim; d += 32) out[d] = cache_code<CodeElement<C>>(to_float(x[d]), scale);
}

template <class T>
struct DecodeCodesParams {
  const std::uint8_t* codes;
  const float* scales;
  T* out;
  const std::int32_t* rows;  // optional
  std::int64_t count, scale_stride;
  int heads, dim;
};

// N elements per step, of one vector.
template <class T, class C, int N>
__global__ __launch_bounds__(kThreads) void decode_codes_kernel(const __grid_constant__ DecodeCodesParams<T> p) {
  pdl_sync();
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < p.count / N; i += step) {
    const std::int64_t vector = i * N / p.dim, head = vector % p.heads;
    const std::int64_t row = p.rows != nullptr ? p.rows[vector / p.heads] : vector / p.heads;
    const float scale = p.scales[row * p.scale_stride + head];
    const std::uint8_t* const codes = p.codes + (row * p.heads + head) * p.dim + i * N % p.dim;
    Vector<float, N> values;
    if constexpr (N == 1) {
      values[0] = C::decode(*codes) * scale;
    } else {
      const auto words = *reinterpret_cast<const Vector<std::uint32_t, N / 4>*>(codes);
#pragma unroll
      for (int w = 0; w < N / 4; ++w) {
        float word[4];
        C::decode_word(words[w], word);
#pragma unroll
        for (int j = 0; j < 4; ++j) values[4 * w + j] = word[j] * scale;
      }
    }
    store_values(p.out, i, values);
  }
}

// body<T, C>() of the dtypes of values and codes.
template <class Body>
void dispatch(DType values, DType codes, const Body& body) {
  const auto of_values = [&]<class T>() {
    codes == DType::f8_e4m3 ? body.template operator()<T, Float8>() : body.template operator()<T, Int8>();
  };
  values == DType::f32 ? of_values.template operator()<float>() : of_values.template operator()<bfloat16>();
}

void append(const AppendCodesArgs& args) {
  const OpLaunch launch("append_codes", {&args.values, &args.positions, &args.cache, &args.scales});
  const std::int64_t heads = args.scales.size(-1), tokens = args.values.size(0);
  dispatch(args.values.dtype(), args.cache.dtype(), [&]<class T, class C>() {
    launch.early(tokens, append_codes_kernel<T, C>, static_cast<unsigned>((tokens * heads + kWarps - 1) / kWarps),
                 kThreads, 0,
                 AppendParams<T>{.values = args.values.data<T>(),
                                 .positions = args.positions.data<std::int32_t>(),
                                 .codes = static_cast<std::uint8_t*>(args.cache.raw_data()),
                                 .scales = args.scales.data<float>(),
                                 .vectors = tokens * heads,
                                 .capacity = args.cache.size(0),
                                 .value_stride = args.values.stride(0),
                                 .scale_stride = scale_stride(args.scales),
                                 .heads = static_cast<int>(heads),
                                 .dim = static_cast<int>(args.cache.size(1) / heads)});
  });
}

void decode(const DecodeCodesArgs& args) {
  const OpLaunch launch("decode_codes", {&args.cache, &args.scales, &args.out, &args.rows});
  const std::int64_t heads = args.scales.size(-1), dim = args.cache.size(1) / heads;
  const auto aligned = [](const Tensor& t) { return reinterpret_cast<std::uintptr_t>(t.raw_data()) % 16 == 0; };
  dispatch(args.out.dtype(), args.cache.dtype(), [&]<class T, class C>() {
    const DecodeCodesParams<T> params{.codes = static_cast<const std::uint8_t*>(args.cache.raw_data()),
                                      .scales = args.scales.data<float>(),
                                      .out = args.out.data<T>(),
                                      .rows = args.rows.defined() ? args.rows.data<std::int32_t>() : nullptr,
                                      .count = args.out.numel(),
                                      .scale_stride = scale_stride(args.scales),
                                      .heads = static_cast<int>(heads),
                                      .dim = static_cast<int>(dim)};
    const auto run = [&](auto kernel, std::int64_t elements) {
      launch.early(args.out.size(0), kernel, strided_grid(launch.device(), params.count, kThreads * elements, 8, 4),
                   kThreads, 0, params);
    };
    if (dim % 8 == 0 && reinterpret_cast<std::uintptr_t>(args.cache.raw_data()) % 8 == 0 && aligned(args.out))
      run(decode_codes_kernel<T, C, 8>, 8);
    else
      run(decode_codes_kernel<T, C, 1>, 1);
  });
}

QUENCH_CUDA_KERNEL(append_codes_slot, append);
QUENCH_CUDA_KERNEL(decode_codes_slot, decode);

}  // namespace
}  // namespace quench::cuda
