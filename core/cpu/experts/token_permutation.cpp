#include "core/ops/experts/token_permutation.h"
#include "core/ops/quantize/round_mx.h"

#include <cstring>

#include "core/cpu/parallel.h"
#include "core/cpu/vector_math.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// Stable counting sort.
void token_permutation_kernel(const TokenPermutationArgs& args) {
  const std::int64_t count = args.experts.numel(), experts = args.counts.size(0), capacity = args.pairs.size(0);
  const auto* chosen = args.experts.data<std::int32_t>();
  auto* counts = args.counts.data<float>();
  auto* ends = args.ends.data<std::int32_t>();
  auto* rows = args.rows.data<std::int32_t>();
  auto* pairs = args.pairs.data<std::int32_t>();
  std::fill(ends, ends + experts, 0);
  for (std::int64_t i = 0; i < count; ++i) {
    QUENCH_CHECK(chosen[i] >= 0 && chosen[i] < experts, "token_permutation: pair {} goes to expert {} of {}", i,
                 chosen[i], experts);
    ++ends[chosen[i]];
  }
  // Next free row of each expert during placement.
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor last = Tensor::empty({experts}, DType::i32);
  std::int64_t begin = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::int64_t size = ends[e];
    counts[e] = static_cast<float>(size);
    ends[e] = static_cast<std::int32_t>(begin);
    begin += (size + args.alignment - 1) / args.alignment * args.alignment;
    last.data<std::int32_t>()[e] = static_cast<std::int32_t>(begin);
  }
  std::fill(pairs, pairs + capacity, -1);
  for (std::int64_t i = 0; i < count; ++i) {
    rows[i] = ends[chosen[i]]++;
    pairs[rows[i]] = static_cast<std::int32_t>(i);
  }
  std::memcpy(ends, last.raw_data(), last.nbytes());
}

void gather_rows_kernel(const PermuteTokensArgs& args) {
  const std::int64_t n = args.out.size(0), row_bytes = args.x.size(1) * byte_size(args.x.dtype());
  const std::int64_t x_step = args.x.stride(0) * byte_size(args.x.dtype());
  const auto* x = static_cast<const std::byte*>(args.x.raw_data());
  auto* out = static_cast<std::byte*>(args.out.raw_data());
  const std::int32_t* pairs = args.pairs.data<std::int32_t>();
  parallel_ranges(n, args.out.numel(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      std::byte* target = out + r * row_bytes;
      if (pairs[r] < 0)
        std::memset(target, 0, static_cast<std::size_t>(row_bytes));
      else
        std::memcpy(target, x + pairs[r] / args.choices * x_step, static_cast<std::size_t>(row_bytes));
    }
  });
}

template <class T>
void unpermute_tokens(const UnpermuteTokensArgs& args) {
  const std::int64_t n = args.out.size(0), width = args.out.size(1), choices = args.rows.size(1);
  const std::int64_t step = args.out.stride(0);
  const T* y = args.y.data<T>();
  T* out = args.out.data<T>();
  const std::int32_t* rows = args.rows.data<std::int32_t>();
  parallel_ranges(n, n * width * choices, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int32_t* of_token = rows + i * choices;
      for_vectors(width, [&](std::int64_t column, auto count) {
        F32 sum = broadcast(0.0f);
        for (std::int64_t j = 0; j < choices; ++j)
          if (of_token[j] >= 0) sum += load(y + of_token[j] * width + column, count);
        store(out + i * step + column, sum, count);
      });
    }
  });
}

void unpermute_tokens_kernel(const UnpermuteTokensArgs& args) {
  dispatch<float, bfloat16>(args.y.dtype(), "unpermute_tokens", [&]<class T>() { unpermute_tokens<T>(args); });
}

template <class T>
void swiglu_forward(const ExpertSwigluArgs& args) {
  const std::int64_t n = args.out.size(0), width = args.out.size(1);
  const T* gate_up = args.gate_up.data<T>();
  T* out = args.out.data<T>();
  const float* weights = args.weights.data<float>();
  const std::int32_t* pairs = args.pairs.data<std::int32_t>();
  parallel_ranges(n, n * width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      T* target = out + row * width;
      if (pairs[row] < 0) {
        std::memset(target, 0, static_cast<std::size_t>(width) * sizeof(T));
        continue;
      }
      const T* gate = gate_up + row * 2 * width;
      const F32 weight = broadcast(weights[pairs[row]]);
      // silu(w g) * (w u) = w g * sigmoid(w g) * u * w
      const F32 inner = broadcast(args.score_before_experts ? weights[pairs[row]] : 1.0f);
      for_vectors(width, [&](std::int64_t i, auto count) {
        const F32 g = load(gate + i, count) * inner;
        store(target + i, g * sigmoid(g) * load(gate + width + i, count) * weight, count);
      });
    }
  });
}

// With s = sigmoid(g): d silu(g) / dg = s (1 + g (1 - s)). Input weighting: dweight = sum of gate and up times their
// weighted values' gradients.
template <class T>
void swiglu_backward(const ExpertSwigluBackwardArgs& args) {
  const std::int64_t n = args.dout.size(0), width = args.dout.size(1);
  const T* gate_up = args.gate_up.data<T>();
  const T* dout = args.dout.data<T>();
  T* dgate_up = args.dgate_up.data<T>();
  const float* weights = args.weights.data<float>();
  float* dweights = args.dweights.data<float>();
  const std::int32_t* pairs = args.pairs.data<std::int32_t>();
  parallel_ranges(n, n * width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      T* target = dgate_up + row * 2 * width;
      if (pairs[row] < 0) {
        std::memset(target, 0, 2 * static_cast<std::size_t>(width) * sizeof(T));
        continue;
      }
      const T* gate = gate_up + row * 2 * width;
      const T* gradient = dout + row * width;
      const F32 weight = broadcast(weights[pairs[row]]);
      F32 product{};
      if (args.score_before_experts) {
        for_vectors(width, [&](std::int64_t i, auto count) {
          const F32 g = load(gate + i, count), up = load(gate + width + i, count), d = load(gradient + i, count);
          const F32 inner = g * weight, s = sigmoid(inner), silu = inner * s;
          const F32 dgate = d * up * weight * fma(silu, 1.0f - s, s), dup = d * silu;
          product += dgate * g + dup * up;
          store(target + i, dgate * weight, count);
          store(target + width + i, dup * weight, count);
        });
        dweights[pairs[row]] = reduce_add(product);
        continue;
      }
      for_vectors(width, [&](std::int64_t i, auto count) {
        const F32 g = load(gate + i, count), up = load(gate + width + i, count), d = load(gradient + i, count);
        const F32 s = sigmoid(g), silu = g * s, weighted = d * weight;
        product += d * silu * up;
        store(target + i, weighted * up * fma(silu, 1.0f - s, s), count);
        store(target + width + i, weighted * silu, count);
      });
      dweights[pairs[row]] = reduce_add(product);
    }
  });
}

void expert_swiglu_kernel(const ExpertSwigluArgs& args) {
  dispatch<float, bfloat16>(args.out.dtype(), "expert_swiglu", [&]<class T>() { swiglu_forward<T>(args); });
  if (args.round) round_mx({.x = args.out, .out = args.out, .mode = *args.round});
}

void expert_swiglu_backward_kernel(const ExpertSwigluBackwardArgs& args) {
  // First: dgate_up may alias gate_up.
  if (args.out.defined())
    expert_swiglu_kernel({args.gate_up, args.weights, args.pairs, args.out, args.score_before_experts});
  dispatch<float, bfloat16>(args.dout.dtype(), "expert_swiglu_backward", [&]<class T>() { swiglu_backward<T>(args); });
}

QUENCH_CPU_KERNEL(token_permutation_slot, token_permutation_kernel);
QUENCH_CPU_KERNEL(permute_tokens_slot, gather_rows_kernel);
QUENCH_CPU_KERNEL(unpermute_tokens_slot, unpermute_tokens_kernel);
QUENCH_CPU_KERNEL(expert_swiglu_slot, expert_swiglu_kernel);
QUENCH_CPU_KERNEL(expert_swiglu_backward_slot, expert_swiglu_backward_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
