// Divergence of teacher and student logits with cross-entropy, one CTA per row: a pass of online log-sum-exp, a pass of
// the divergence, and a pass of the gradient, which forward KL computes with the divergence.

#include "core/ops/loss/distillation_loss.h"

#include "core/cuda/vocabulary/divergence.cuh"
#include "core/ops/loss/cross_entropy.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 512;

template <class T, class G>
struct DistillationRows {
  const T* logits;
  const T* teacher;
  const std::int32_t* labels;
  float *losses, *cross_entropies, *divergences;
  G* dlogits;  // null: losses only; may alias logits
  std::int64_t rows, vocab;
  Divergence divergence;
  float per_temperature, beta;
  float label_weight, divergence_weight;  // factors of the losses
  float label_scale, divergence_scale;    // factors of the gradients
};

template <class T, class G, bool kWide>
__global__ __launch_bounds__(kThreads) void distillation_kernel(DistillationRows<T, G> args) {
  constexpr int kWidth = kWide ? kVectorWidth<T> : 1;
  __shared__ float scratch[33];
  const std::int64_t end = args.vocab / kWidth;
  for (std::int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const T* student = args.logits + row * args.vocab;
    const T* teacher = args.teacher + row * args.vocab;
    G* gradients = args.dlogits != nullptr ? args.dlogits + row * args.vocab : nullptr;
    const std::int32_t label = args.labels[row];
    if (label == kIgnoreLabel) {
      if (threadIdx.x == 0) args.losses[row] = args.cross_entropies[row] = args.divergences[row] = 0.0f;
      if (gradients != nullptr)
        for (std::int64_t v = threadIdx.x; v < end; v += kThreads) store_values(gradients, v, Vector<float, kWidth>{});
      continue;
    }
    const bool label_exists = label >= 0 && label < args.vocab;
    // The gradient may overwrite the logit.
    const float label_logit = label_exists ? to_float(student[label]) : 0.0f;
    const bool two_sums = args.per_temperature != 1;
    OnlineSum of_student, of_teacher, of_label;
#pragma unroll 2
    for (std::int64_t v = threadIdx.x; v < end; v += kThreads) {
      const auto z = unpack(load_packed<T, kWidth>(student, v));
      of_student.add(z, args.per_temperature);
      of_teacher.add(unpack(load_packed<T, kWidth>(teacher, v)), args.per_temperature);
      if (two_sums) of_label.add(z, 1.0f);
    }
    const float log_student = of_student.log_sum<kThreads>(scratch),
                log_teacher = of_teacher.log_sum<kThreads>(scratch);
    const float log_label = two_sums ? of_label.log_sum<kThreads>(scratch) : log_student;

    const auto element = [&](float z, float t) {
      return DivergenceTerm(t * args.per_temperature - log_teacher, z * args.per_temperature - log_student,
                            args.divergence, args.beta);
    };
    const bool one_pass = args.divergence == Divergence::forward_kl;
    float centre = 0;
    // Gradient of element j of piece v.
    const auto gradient = [&](const DivergenceTerm& e, float z, std::int64_t at) {
      const float g = args.divergence_scale * (one_pass ? e.q - e.p : e.q * (e.g - centre));
      if (args.label_scale == 0) return g;
      const float softmax = two_sums ? expf(z - log_label) : e.q;
      return g + args.label_scale * (softmax - (at == label ? 1.0f : 0.0f));
    };
    float divergence = 0, mean = 0;
#pragma unroll 2
    for (std::int64_t v = threadIdx.x; v < end; v += kThreads) {
      auto z = unpack(load_packed<T, kWidth>(student, v));
      const auto t = unpack(load_packed<T, kWidth>(teacher, v));
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const DivergenceTerm e = element(z[j], t[j]);
        divergence += e.summand;
        mean += e.q * e.g;
        if (one_pass) z[j] = gradient(e, z[j], v * kWidth + j);
      }
      if (one_pass && gradients != nullptr) store_values(gradients, v, z);
    }
    divergence = block_reduce<kThreads>(divergence, 0.0f, scratch, Sum());
    if (!label_exists) divergence = __int_as_float(0x7FC00000);  // invalid label: NaN
    if (threadIdx.x == 0) {
      args.divergences[row] = divergence;
      args.cross_entropies[row] = log_label - label_logit;
      args.losses[row] = args.label_weight * (log_label - label_logit) + args.divergence_weight * divergence;
    }
    if (one_pass || gradients == nullptr) continue;
    centre = block_reduce<kThreads>(mean, 0.0f, scratch, Sum());
#pragma unroll 2
    for (std::int64_t v = threadIdx.x; v < end; v += kThreads) {
      auto z = unpack(load_packed<T, kWidth>(student, v));
      const auto t = unpack(load_packed<T, kWidth>(teacher, v));
#pragma unroll
      for (int j = 0; j < kWidth; ++j) z[j] = gradient(element(z[j], t[j]), z[j], v * kWidth + j);
      store_values(gradients, v, z);
    }
  }
}

void distillation_loss(const DistillationLossArgs& args) {
  const OpLaunch launch("distillation_loss", {&args.logits, &args.teacher, &args.labels, &args.losses,
                                              &args.cross_entropies, &args.divergences, &args.dlogits});
  const DType gradient = args.dlogits.defined() ? args.dlogits.dtype() : args.logits.dtype();
  const float temperature = args.temperature;
  dispatch<float, bfloat16>(args.logits.dtype(), "distillation_loss", [&]<class T>() {
    dispatch<float, bfloat16>(gradient, "distillation_loss", [&]<class G>() {
      const DistillationRows<T, G> rows{.logits = args.logits.data<T>(),
                                        .teacher = args.teacher.data<T>(),
                                        .labels = args.labels.data<std::int32_t>(),
                                        .losses = args.losses.data<float>(),
                                        .cross_entropies = args.cross_entropies.data<float>(),
                                        .divergences = args.divergences.data<float>(),
                                        .dlogits = args.dlogits.defined() ? args.dlogits.data<G>() : nullptr,
                                        .rows = args.logits.size(0),
                                        .vocab = args.logits.size(1),
                                        .divergence = args.divergence,
                                        .per_temperature = 1.0f / temperature,
                                        .beta = args.beta,
                                        .label_weight = args.cross_entropy_weight,
                                        .divergence_weight = args.divergence_weight * temperature * temperature,
                                        .label_scale = args.grad_scale * args.cross_entropy_weight,
                                        .divergence_scale = args.grad_scale * args.divergence_weight * temperature};
      const bool wide = rows_are_wide<T>(rows.logits, rows.vocab, rows.vocab) &&
                        rows_are_wide<T>(rows.teacher, rows.vocab, rows.vocab) &&
                        reinterpret_cast<std::uintptr_t>(rows.dlogits) % 16 == 0;
      launch(wide ? distillation_kernel<T, G, true> : distillation_kernel<T, G, false>,
             strided_grid(launch.device(), rows.rows, 1, 4, 4), kThreads, 0, rows);
    });
  });
}

QUENCH_CUDA_KERNEL(distillation_loss_slot, distillation_loss);

}  // namespace
}  // namespace quench::cuda
