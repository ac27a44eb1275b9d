// Divergence from a teacher's K most probable tokens, one CTA per row: a bitmap of kept tokens in shared memory, a pass
// of online log-sum-exp over the others, the K + 1 outcomes, and a pass of the gradient.

#include "core/ops/loss/top_k_distillation_loss.h"

#include "core/cuda/vocabulary/divergence.cuh"
#include "core/ops/loss/cross_entropy.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 512;

template <class T, class G>
struct TopKRows {
  const T* logits;
  const std::int32_t* ids;
  const float *log_probs, *tail;
  const std::int32_t* labels;
  float *losses, *cross_entropies, *divergences;
  G* dlogits;  // null: losses only; may alias logits
  std::int64_t rows, vocab, k;
  Divergence divergence;
  float per_temperature, beta;
  float label_weight, divergence_weight;  // factors of the losses
  float label_scale, divergence_scale;    // factors of the gradients
};

__device__ inline float log_add(float a, float b) {
  const float shift = shift_of(fmaxf(a, b));
  return shift + logf(expf(a - shift) + expf(b - shift));
}

template <class T, class G, bool kWide>
__global__ __launch_bounds__(kThreads) void top_k_loss_kernel(TopKRows<T, G> args) {
  constexpr int kWidth = kWide ? kVectorWidth<T> : 1;
  extern __shared__ std::uint32_t kept[];  // a bit for each token
  __shared__ float scratch[33];
  const std::int64_t end = args.vocab / kWidth, words = (args.vocab + 31) / 32;
  const auto kept_bits = [&](std::int64_t v) { return kept[v * kWidth / 32] >> (v * kWidth % 32); };
  for (std::int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const T* student = args.logits + row * args.vocab;
    const std::int32_t* ids = args.ids + row * args.k;
    const float* log_probs = args.log_probs + row * args.k;
    G* gradients = args.dlogits != nullptr ? args.dlogits + row * args.vocab : nullptr;
    const std::int32_t label = args.labels[row];
    if (label == kIgnoreLabel) {
      if (threadIdx.x == 0) args.losses[row] = args.cross_entropies[row] = args.divergences[row] = 0.0f;
      if (gradients != nullptr)
        for (std::int64_t v = threadIdx.x; v < end; v += kThreads) store_values(gradients, v, Vector<float, kWidth>{});
      continue;
    }
    __syncthreads();  // the last row's bitmap has been read
    for (std::int64_t w = threadIdx.x; w < words; w += kThreads) kept[w] = 0;
    __syncthreads();
    bool invalid = label < 0 || label >= args.vocab;
    // The gradient may overwrite the logit.
    const float label_logit = invalid ? 0.0f : to_float(student[label]);
    OnlineSum of_kept, of_teacher, of_rest, of_label;
    for (std::int64_t j = threadIdx.x; j < args.k; j += kThreads) {
      const std::int32_t id = ids[j];
      of_teacher.add(Vector<float, 1>{{log_probs[j]}}, 1.0f);
      if (id < 0 || id >= args.vocab) {
        invalid = true;
        continue;
      }
      atomicOr(&kept[id / 32], 1u << (id % 32));
      of_kept.add(Vector<float, 1>{{to_float(student[id])}}, args.per_temperature);
    }
    if (threadIdx.x == 0) of_teacher.add(Vector<float, 1>{{args.tail[row]}}, 1.0f);
    invalid = __syncthreads_or(invalid);
    const bool two_sums = args.per_temperature != 1;
#pragma unroll 2
    for (std::int64_t v = threadIdx.x; v < end; v += kThreads) {
      auto z = unpack(load_packed<T, kWidth>(student, v));
      if (two_sums) of_label.add(z, 1.0f);
      const std::uint32_t bits = kept_bits(v);
#pragma unroll
      for (int j = 0; j < kWidth; ++j)
        if (bits >> j & 1u) z[j] = -INFINITY;
      of_rest.add(z, args.per_temperature);
    }
    const float log_rest = of_rest.template log_sum<kThreads>(scratch);
    const float log_student = log_add(of_kept.template log_sum<kThreads>(scratch), log_rest);
    const float log_teacher = of_teacher.template log_sum<kThreads>(scratch);
    const float log_label = two_sums ? of_label.template log_sum<kThreads>(scratch) : log_student;

    const auto kept_term = [&](std::int64_t j, float z) {
      return DivergenceTerm(log_probs[j] - log_teacher, z * args.per_temperature - log_student, args.divergence,
                            args.beta);
    };
    const DivergenceTerm others(args.tail[row] - log_teacher, log_rest - log_student, args.divergence, args.beta);
    float divergence = threadIdx.x == 0 ? others.summand : 0.0f, mean = threadIdx.x == 0 ? others.q * others.g : 0.0f;
    if (!invalid)
      for (std::int64_t j = threadIdx.x; j < args.k; j += kThreads) {
        const DivergenceTerm term = kept_term(j, to_float(student[ids[j]]));
        divergence += term.summand;
        mean += term.q * term.g;
      }
    divergence = block_reduce<kThreads>(divergence, 0.0f, scratch, Sum());
    const float centre = block_reduce<kThreads>(mean, 0.0f, scratch, Sum());
    if (invalid) divergence = __int_as_float(0x7FC00000);  // NaN
    if (threadIdx.x == 0) {
      args.divergences[row] = divergence;
      args.cross_entropies[row] = log_label - label_logit;
      args.losses[row] = args.label_weight * (log_label - label_logit) + args.divergence_weight * divergence;
    }
    if (gradients == nullptr || invalid) continue;  // uniform
    const bool forward = args.divergence == Divergence::forward_kl;
    const auto slope = [&](const DivergenceTerm& term) {
      return args.divergence_scale * (forward ? term.q - term.p : term.q * (term.g - centre));
    };
    const auto of_labels = [&](float z, std::int64_t at) {
      return args.label_scale == 0 ? 0.0f : args.label_scale * (expf(z - log_label) - (at == label ? 1.0f : 0.0f));
    };
    const float rest_slope = slope(others), shift = shift_of(log_rest);
#pragma unroll 2
    for (std::int64_t v = threadIdx.x; v < end; v += kThreads) {
      auto z = unpack(load_packed<T, kWidth>(student, v));
      const std::uint32_t bits = kept_bits(v);
#pragma unroll
      for (int j = 0; j < kWidth; ++j)
        if ((bits >> j & 1u) == 0)  // kept logits are read below, also in place
          z[j] = rest_slope * expf(z[j] * args.per_temperature - shift) + of_labels(z[j], v * kWidth + j);
      store_values(gradients, v, z);
    }
    __syncthreads();
    for (std::int64_t j = threadIdx.x; j < args.k; j += kThreads) {
      const float z = to_float(student[ids[j]]);
      gradients[ids[j]] = from_float<G>(slope(kept_term(j, z)) + of_labels(z, ids[j]));
    }
  }
}

void top_k_distillation_loss(const TopKDistillationLossArgs& args) {
  const OpLaunch launch("top_k_distillation_loss",
                        {&args.logits, &args.ids, &args.log_probs, &args.tail, &args.labels, &args.losses,
                         &args.cross_entropies, &args.divergences, &args.dlogits});
  const DType gradient = args.dlogits.defined() ? args.dlogits.dtype() : args.logits.dtype();
  const float temperature = args.temperature;
  const std::int64_t vocab = args.logits.size(1), bitmap = (vocab + 31) / 32 * 4;
  QUENCH_CHECK(bitmap + 1024 <= max_shared_bytes(launch.device()),
               "top_k_distillation_loss: a bitmap of {} tokens exceeds the device's shared memory of {} bytes", vocab,
               max_shared_bytes(launch.device()));
  dispatch<float, bfloat16>(args.logits.dtype(), "top_k_distillation_loss", [&]<class T>() {
    dispatch<float, bfloat16>(gradient, "top_k_distillation_loss", [&]<class G>() {
      const TopKRows<T, G> rows{.logits = args.logits.data<T>(),
                                .ids = args.ids.data<std::int32_t>(),
                                .log_probs = args.log_probs.data<float>(),
                                .tail = args.tail.data<float>(),
                                .labels = args.labels.data<std::int32_t>(),
                                .losses = args.losses.data<float>(),
                                .cross_entropies = args.cross_entropies.data<float>(),
                                .divergences = args.divergences.data<float>(),
                                .dlogits = args.dlogits.defined() ? args.dlogits.data<G>() : nullptr,
                                .rows = args.logits.size(0),
                                .vocab = vocab,
                                .k = args.ids.size(1),
                                .divergence = args.divergence,
                                .per_temperature = 1.0f / temperature,
                                .beta = args.beta,
                                .label_weight = args.cross_entropy_weight,
                                .divergence_weight = args.divergence_weight * temperature * temperature,
                                .label_scale = args.grad_scale * args.cross_entropy_weight,
                                .divergence_scale = args.grad_scale * args.divergence_weight * temperature};
      const bool wide =
          rows_are_wide<T>(rows.logits, vocab, vocab) && reinterpret_cast<std::uintptr_t>(rows.dlogits) % 16 == 0;
      launch(wide ? top_k_loss_kernel<T, G, true> : top_k_loss_kernel<T, G, false>,
             strided_grid(launch.device(), rows.rows, 1, 4, 4), kThreads, static_cast<std::size_t>(bitmap), rows);
    });
  });
}

QUENCH_CUDA_KERNEL(top_k_distillation_loss_slot, top_k_distillation_loss);

}  // namespace
}  // namespace quench::cuda
