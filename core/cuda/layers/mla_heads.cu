// One read per output element, two under RoPE; the shared key is read per head, from cache.

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pack.cuh"
#include "core/ops/mla_heads.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;

struct Shape {
  int heads, plain, rotary, value, width;
  bool interleaved;

  explicit Shape(const MlaHeadsShape& s)
      : heads(static_cast<int>(s.heads)),
        plain(static_cast<int>(s.plain)),
        rotary(static_cast<int>(s.rotary)),
        value(static_cast<int>(s.value)),
        width(static_cast<int>(s.width())),
        interleaved(s.interleaved) {}
  // Halves of pair i before RoPE.
  [[nodiscard]] __device__ int first(int i) const { return interleaved ? 2 * i : i; }
  [[nodiscard]] __device__ int second(int i) const { return interleaved ? 2 * i + 1 : i + rotary / 2; }
};

// Element `column` of a RoPE part.
template <class T>
__device__ inline T rotated(const T* x, const Shape& s, const float* cos, const float* sin, int column) {
  const int half = s.rotary / 2, i = column < half ? column : column - half;
  const float a = to_float(x[s.first(i)]), b = to_float(x[s.second(i)]);
  return from_float<T>(column < half ? a * cos[i] - b * sin[i] : b * cos[i] + a * sin[i]);
}

template <class T>
__global__ __launch_bounds__(kThreads) void heads_kernel(const T* q, const T* kv, const T* key, const float* cos,
                                                         const float* sin, const std::int32_t* positions, T* out,
                                                         Shape s, std::int64_t count) {
  const int all = s.heads * s.width;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const std::int64_t row = i / (3 * all);
    const int place = static_cast<int>(i - row * 3 * all), part = place / all, in_part = place - part * all;
    const int head = in_part / s.width, column = in_part - head * s.width;
    const float* c = cos + std::int64_t{positions[row]} * (s.rotary / 2);
    const float* d = sin + std::int64_t{positions[row]} * (s.rotary / 2);
    const T* of_kv = kv + (row * s.heads + head) * (s.plain + s.value);
    if (part == 0) {
      const T* query = q + row * all + head * s.width;
      out[i] = column < s.plain ? query[column] : rotated(query + s.plain, s, c, d, column - s.plain);
    } else if (part == 1) {
      out[i] = column < s.plain ? of_kv[column] : rotated(key + row * s.rotary, s, c, d, column - s.plain);
    } else {
      out[i] = column < s.value ? of_kv[s.plain + column] : from_float<T>(0.0f);
    }
  }
}

// Gradient before RoPE.
template <class T>
__device__ inline float rotated_back(const T* dout, const Shape& s, const float* cos, const float* sin, int column) {
  const int half = s.rotary / 2;
  const int i = s.interleaved ? column / 2 : column < half ? column : column - half;
  const bool first = s.interleaved ? column % 2 == 0 : column < half;
  const float a = to_float(dout[i]), b = to_float(dout[i + half]);
  return first ? a * cos[i] + b * sin[i] : b * cos[i] - a * sin[i];
}

template <class T>
__global__ __launch_bounds__(kThreads) void heads_backward_kernel(const T* dout, const float* cos, const float* sin,
                                                                  const std::int32_t* positions, T* dq, T* dkv, Shape s,
                                                                  std::int64_t count) {
  const int all = s.heads * s.width, of_kv = s.plain + s.value, row_work = s.heads * (s.width + of_kv);
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const std::int64_t row = i / row_work;
    const int place = static_cast<int>(i - row * row_work);
    const T* of_row = dout + row * 3 * all;
    if (place < all) {
      const int head = place / s.width, column = place - head * s.width;
      const float* c = cos + std::int64_t{positions[row]} * (s.rotary / 2);
      const float* d = sin + std::int64_t{positions[row]} * (s.rotary / 2);
      const T* query = of_row + head * s.width;
      dq[row * all + place] =
          column < s.plain ? query[column] : from_float<T>(rotated_back(query + s.plain, s, c, d, column - s.plain));
    } else {
      const int in_kv = place - all, head = in_kv / of_kv, column = in_kv - head * of_kv;
      const T* key = of_row + all + head * s.width;
      dkv[row * s.heads * of_kv + in_kv] = column < s.plain ? key[column] : key[all + column - s.plain];
    }
  }
}

// Heads in order.
template <class T>
__global__ __launch_bounds__(kThreads) void key_backward_kernel(const T* dout, const float* cos, const float* sin,
                                                                const std::int32_t* positions, T* dkey, Shape s,
                                                                std::int64_t count) {
  const int all = s.heads * s.width;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const std::int64_t row = i / s.rotary;
    const int column = static_cast<int>(i - row * s.rotary);
    const float* c = cos + std::int64_t{positions[row]} * (s.rotary / 2);
    const float* d = sin + std::int64_t{positions[row]} * (s.rotary / 2);
    const T* keys = dout + row * 3 * all + all + s.plain;
    float sum = 0.0f;
    for (int head = 0; head < s.heads; ++head) sum += rotated_back(keys + head * s.width, s, c, d, column);
    dkey[i] = from_float<T>(sum);
  }
}

unsigned grid_of(const OpLaunch& launch, std::int64_t count) {
  return strided_grid(launch.device(), count, kThreads, 8, 4);
}

void mla_heads_cuda(const MlaHeadsArgs& args) {
  const OpLaunch launch("mla_heads", {&args.q, &args.kv, &args.key, &args.out});
  dispatch<float, bfloat16>(args.out.dtype(), "mla_heads", [&]<class T>() {
    launch(heads_kernel<T>, grid_of(launch, args.out.numel()), kThreads, 0, args.q.data<T>(), args.kv.data<T>(),
           args.key.data<T>(), args.cos.data<float>(), args.sin.data<float>(), args.positions.data<std::int32_t>(),
           args.out.data<T>(), Shape(args.shape), args.out.numel());
  });
}

void mla_heads_backward_cuda(const MlaHeadsBackwardArgs& args) {
  const OpLaunch launch("mla_heads_backward", {&args.dout, &args.dq, &args.dkv, &args.dkey});
  const float *cos = args.cos.data<float>(), *sin = args.sin.data<float>();
  const auto* positions = args.positions.data<std::int32_t>();
  const std::int64_t count = args.dq.numel() + args.dkv.numel();
  dispatch<float, bfloat16>(args.dout.dtype(), "mla_heads_backward", [&]<class T>() {
    launch(heads_backward_kernel<T>, grid_of(launch, count), kThreads, 0, args.dout.data<T>(), cos, sin, positions,
           args.dq.data<T>(), args.dkv.data<T>(), Shape(args.shape), count);
    launch(key_backward_kernel<T>, grid_of(launch, args.dkey.numel()), kThreads, 0, args.dout.data<T>(), cos, sin,
           positions, args.dkey.data<T>(), Shape(args.shape), args.dkey.numel());
  });
}

QUENCH_CUDA_KERNEL(mla_heads_slot, mla_heads_cuda);
QUENCH_CUDA_KERNEL(mla_heads_backward_slot, mla_heads_backward_cuda);

}  // namespace
}  // namespace quench::cuda
