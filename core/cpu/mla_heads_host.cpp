#include "core/ops/mla_heads.h"

#include <vector>

#include "core/cpu/parallel.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// Halves of pair i before RoPE.
struct Pair {
  std::int64_t first, second;
};
Pair pair_of(const MlaHeadsShape& shape, std::int64_t i) {
  if (shape.interleaved) return {2 * i, 2 * i + 1};
  return {i, i + shape.rotary / 2};
}

template <class T>
void rotate(const T* x, const float* cos, const float* sin, const MlaHeadsShape& shape, T* out) {
  const std::int64_t half = shape.rotary / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const Pair pair = pair_of(shape, i);
    const auto a = static_cast<float>(x[pair.first]), b = static_cast<float>(x[pair.second]);
    out[i] = T(a * cos[i] - b * sin[i]);
    out[i + half] = T(b * cos[i] + a * sin[i]);
  }
}

// Inverse RoPE, added in f32.
template <class T>
void rotate_back(const T* dout, const float* cos, const float* sin, const MlaHeadsShape& shape, float* dx) {
  const std::int64_t half = shape.rotary / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const Pair pair = pair_of(shape, i);
    const auto a = static_cast<float>(dout[i]), b = static_cast<float>(dout[i + half]);
    dx[pair.first] += a * cos[i] + b * sin[i];
    dx[pair.second] += b * cos[i] - a * sin[i];
  }
}

template <class T>
void forward(const MlaHeadsArgs& args) {
  const MlaHeadsShape& s = args.shape;
  const std::int64_t n = args.out.size(0), width = s.width(), of_kv = s.plain + s.value, all = s.heads * width;
  const T *q = args.q.data<T>(), *kv = args.kv.data<T>(), *key = args.key.data<T>();
  const auto* positions = args.positions.data<std::int32_t>();
  T* out = args.out.data<T>();
  parallel_ranges(n, args.out.numel(), [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> rotated(static_cast<std::size_t>(s.rotary));
    for (std::int64_t row = begin; row < end; ++row) {
      const float* cos = args.cos.data<float>() + positions[row] * (s.rotary / 2);
      const float* sin = args.sin.data<float>() + positions[row] * (s.rotary / 2);
      rotate(key + row * s.rotary, cos, sin, s, rotated.data());
      for (std::int64_t h = 0; h < s.heads; ++h) {
        T* query = out + row * 3 * all + h * width;
        const T *from_q = q + row * all + h * width, *from_kv = kv + (row * s.heads + h) * of_kv;
        std::copy_n(from_q, s.plain, query);
        rotate(from_q + s.plain, cos, sin, s, query + s.plain);
        T *of_key = query + all, *value = of_key + all;
        std::copy_n(from_kv, s.plain, of_key);
        std::copy_n(rotated.data(), s.rotary, of_key + s.plain);
        std::copy_n(from_kv + s.plain, s.value, value);
        std::fill(value + s.value, value + width, T(0.0f));
      }
    }
  });
}

template <class T>
void backward(const MlaHeadsBackwardArgs& args) {
  const MlaHeadsShape& s = args.shape;
  const std::int64_t n = args.dout.size(0), width = s.width(), of_kv = s.plain + s.value, all = s.heads * width;
  const T* dout = args.dout.data<T>();
  T *dq = args.dq.data<T>(), *dkv = args.dkv.data<T>(), *dkey = args.dkey.data<T>();
  const auto* positions = args.positions.data<std::int32_t>();
  parallel_ranges(n, args.dout.numel(), [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> of_query(static_cast<std::size_t>(s.rotary)), of_key(of_query.size());
    for (std::int64_t row = begin; row < end; ++row) {
      const float* cos = args.cos.data<float>() + positions[row] * (s.rotary / 2);
      const float* sin = args.sin.data<float>() + positions[row] * (s.rotary / 2);
      std::ranges::fill(of_key, 0.0f);
      for (std::int64_t h = 0; h < s.heads; ++h) {
        const T* query = dout + row * 3 * all + h * width;
        const T *key = query + all, *value = key + all;
        T *to_q = dq + row * all + h * width, *to_kv = dkv + (row * s.heads + h) * of_kv;
        std::copy_n(query, s.plain, to_q);
        std::ranges::fill(of_query, 0.0f);
        rotate_back(query + s.plain, cos, sin, s, of_query.data());
        for (std::int64_t i = 0; i < s.rotary; ++i) to_q[s.plain + i] = T(of_query[static_cast<std::size_t>(i)]);
        std::copy_n(key, s.plain, to_kv);
        rotate_back(key + s.plain, cos, sin, s, of_key.data());
        std::copy_n(value, s.value, to_kv + s.plain);
      }
      for (std::int64_t i = 0; i < s.rotary; ++i) dkey[row * s.rotary + i] = T(of_key[static_cast<std::size_t>(i)]);
    }
  });
}

void mla_heads_kernel(const MlaHeadsArgs& args) {
  dispatch<float, bfloat16>(args.out.dtype(), "mla_heads", [&]<class T>() { forward<T>(args); });
}
void mla_heads_backward_kernel(const MlaHeadsBackwardArgs& args) {
  dispatch<float, bfloat16>(args.dout.dtype(), "mla_heads_backward", [&]<class T>() { backward<T>(args); });
}

QUENCH_CPU_KERNEL(mla_heads_slot, mla_heads_kernel);
QUENCH_CPU_KERNEL(mla_heads_backward_slot, mla_heads_backward_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
