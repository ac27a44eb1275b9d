// Divergence of a teacher's distribution and the student's logits with cross-entropy, one CTA per row. Against logits:
// a pass of online log-sum-exp, a pass of the divergence, and a pass of the gradient, which forward KL computes with
// the divergence. Against the K most probable tokens: a bitmap of kept tokens in shared memory, a pass of online
// log-sum-exp over the others, the K + 1 outcomes, and a pass of the gradient.

#include "core/ops/loss/distillation_loss.h"

#include "core/cuda/vocabulary/divergence.cuh"
#include "core/ops/loss/cross_entropy.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 512;

template <class T, class G>
struct LossRows {
  const T* logits;
  const std::int32_t* labels;
  float *losses, *cross_entropies, *divergences;
  G* dlogits;  // null: losses only; may alias logits
  std::int64_t rows, vocab;
  Divergence divergence;
  float per_temperature, beta;
  float label_weight, divergence_weight;  // factors of the losses
  float label_scale, divergence_scale;    // factors of the gradients

  __device__ G* gradients(std::int64_t row) const { return dlogits != nullptr ? dlogits + row * vocab : nullptr; }
  __device__ DivergenceTerm term(float a, float b) const { return DivergenceTerm(a, b, divergence, beta); }

  // Outputs of a row without a label. `end`: vectors of kWidth.
  template <int kWidth>
  __device__ void ignore(std::int64_t row, std::int64_t end) const {
    if (threadIdx.x == 0) losses[row] = cross_entropies[row] = divergences[row] = 0.0f;
    if (G* const out = gradients(row); out != nullptr)
      for (std::int64_t v = threadIdx.x; v < end; v += kThreads) store_values(out, v, Vector<float, kWidth>{});
  }
  // By one thread.
  __device__ void write(std::int64_t row, float cross_entropy, float d) const {
    divergences[row] = d;
    cross_entropies[row] = cross_entropy;
    losses[row] = label_weight * cross_entropy + divergence_weight * d;
  }
};

constexpr int kNan = 0x7FC00000;  // for an invalid label or id

template <class T>
struct DenseTarget {
  const T* logits;
};

// Log-sum-exp of a row: student and teacher at the temperature, and the student at temperature 1.
struct RowLogSums {
  float student, teacher, label;
};

template <class T, int kWidth>
__device__ __forceinline__ RowLogSums log_sums(const T* student, const T* teacher, std::int64_t end,
                                               float per_temperature, float* scratch) {
  const bool two_sums = per_temperature != 1;
  OnlineSum of_student, of_teacher, of_label;
#pragma unroll 2
  for (std::int64_t v = threadIdx.x; v < end; v += kThreads) {
    const auto z = unpack(load_packed<T, kWidth>(student, v));
    of_student.add(z, per_temperature);
    of_teacher.add(unpack(load_packed<T, kWidth>(teacher, v)), per_temperature);
    if (two_sums) of_label.add(z, 1.0f);
  }
  const float log_student = of_student.log_sum<kThreads>(scratch), log_teacher = of_teacher.log_sum<kThreads>(scratch);
  return {log_student, log_teacher, two_sums ? of_label.log_sum<kThreads>(scratch) : log_student};
}

template <class T, class G, bool kWide>
__global__ __launch_bounds__(kThreads) void dense_kernel(LossRows<T, G> args, DenseTarget<T> target) {
  constexpr int kWidth = kWide ? kVectorWidth<T> : 1;
  __shared__ float scratch[33];
  const std::int64_t end = args.vocab / kWidth;
  for (std::int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const T* student = args.logits + row * args.vocab;
    const T* teacher = target.logits + row * args.vocab;
    G* gradients = args.gradients(row);
    const std::int32_t label = args.labels[row];
    if (label == kIgnoreLabel) {
      args.template ignore<kWidth>(row, end);
      continue;
    }
    const bool label_exists = label >= 0 && label < args.vocab;
    // The gradient may overwrite the logit.
    const float label_logit = label_exists ? to_float(student[label]) : 0.0f;
    const bool two_sums = args.per_temperature != 1;
    const auto [log_student, log_teacher, log_label] =
        log_sums<T, kWidth>(student, teacher, end, args.per_temperature, scratch);
    const auto element = [&](float z, float t) {
      return args.term(t * args.per_temperature - log_teacher, z * args.per_temperature - log_student);
    };
    const bool one_pass = args.divergence == Divergence::forward_kl;
    float centre = 0;
    // Gradient of element j of vector v.
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
    if (!label_exists) divergence = __int_as_float(kNan);
    if (threadIdx.x == 0) args.write(row, log_label - label_logit, divergence);
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

struct TopKTarget {
  const std::int32_t* ids;
  const float *log_probs, *tail;
  std::int64_t k;
};

__device__ inline float log_add(float a, float b) {
  const float shift = shift_of(fmaxf(a, b));
  return shift + logf(expf(a - shift) + expf(b - shift));
}

template <class T, class G, bool kWide>
__global__ __launch_bounds__(kThreads) void top_k_kernel(LossRows<T, G> args, TopKTarget target) {
  constexpr int kWidth = kWide ? kVectorWidth<T> : 1;
  extern __shared__ std::uint32_t kept[];  // a bit for each token
  __shared__ float scratch[33];
  const std::int64_t end = args.vocab / kWidth, words = (args.vocab + 31) / 32;
  const auto kept_bits = [&](std::int64_t v) { return kept[v * kWidth / 32] >> (v * kWidth % 32); };
  for (std::int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const T* student = args.logits + row * args.vocab;
    const std::int32_t* ids = target.ids + row * target.k;
    const float* log_probs = target.log_probs + row * target.k;
    G* gradients = args.gradients(row);
    const std::int32_t label = args.labels[row];
    if (label == kIgnoreLabel) {
      args.template ignore<kWidth>(row, end);
      continue;
    }
    __syncthreads();  // the last row's bitmap has been read
    for (std::int64_t w = threadIdx.x; w < words; w += kThreads) kept[w] = 0;
    __syncthreads();
    bool invalid = label < 0 || label >= args.vocab;
    // The gradient may overwrite the logit.
    const float label_logit = invalid ? 0.0f : to_float(student[label]);
    OnlineSum of_kept, of_teacher, of_rest, of_label;
    for (std::int64_t j = threadIdx.x; j < target.k; j += kThreads) {
      const std::int32_t id = ids[j];
      of_teacher.add(Vector<float, 1>{{log_probs[j]}}, 1.0f);
      if (id < 0 || id >= args.vocab) {
        invalid = true;
        continue;
      }
      atomicOr(&kept[id / 32], 1u << (id % 32));
      of_kept.add(Vector<float, 1>{{to_float(student[id])}}, args.per_temperature);
    }
    if (threadIdx.x == 0) of_teacher.add(Vector<float, 1>{{target.tail[row]}}, 1.0f);
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
      return args.term(log_probs[j] - log_teacher, z * args.per_temperature - log_student);
    };
    const DivergenceTerm others = args.term(target.tail[row] - log_teacher, log_rest - log_student);
    float divergence = threadIdx.x == 0 ? others.summand : 0.0f, mean = threadIdx.x == 0 ? others.q * others.g : 0.0f;
    if (!invalid)
      for (std::int64_t j = threadIdx.x; j < target.k; j += kThreads) {
        const DivergenceTerm term = kept_term(j, to_float(student[ids[j]]));
        divergence += term.summand;
        mean += term.q * term.g;
      }
    divergence = block_reduce<kThreads>(divergence, 0.0f, scratch, Sum());
    const float centre = block_reduce<kThreads>(mean, 0.0f, scratch, Sum());
    if (invalid) divergence = __int_as_float(kNan);
    if (threadIdx.x == 0) args.write(row, log_label - label_logit, divergence);
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
    for (std::int64_t j = threadIdx.x; j < target.k; j += kThreads) {
      const float z = to_float(student[ids[j]]);
      gradients[ids[j]] = from_float<G>(slope(kept_term(j, z)) + of_labels(z, ids[j]));
    }
  }
}

template <class T, class G>
void launch_rows(const OpLaunch& launch, const DistillationLossArgs& args, const LossRows<T, G>& rows) {
  const bool wide =
      rows_are_wide<T>(rows.logits, rows.vocab, rows.vocab) && reinterpret_cast<std::uintptr_t>(rows.dlogits) % 16 == 0;
  const auto grid = strided_grid(launch.device(), rows.rows, 1, 4, 4);
  if (!args.target.is_top_k()) {
    const DenseTarget<T> target{args.target.logits.data<T>()};
    const bool both = wide && rows_are_wide<T>(target.logits, rows.vocab, rows.vocab);
    launch(both ? dense_kernel<T, G, true> : dense_kernel<T, G, false>, grid, kThreads, 0, rows, target);
    return;
  }
  const std::int64_t bitmap = (rows.vocab + 31) / 32 * 4;
  QUENCH_CHECK(bitmap + 1024 <= max_shared_bytes(launch.device()),
               "distillation_loss: a bitmap of {} tokens exceeds the device's shared memory of {} bytes", rows.vocab,
               max_shared_bytes(launch.device()));
  const TopKTarget target{args.target.ids.data<std::int32_t>(), args.target.log_probs.data<float>(),
                          args.target.tail.data<float>(), args.target.ids.size(1)};
  launch(wide ? top_k_kernel<T, G, true> : top_k_kernel<T, G, false>, grid, kThreads, static_cast<std::size_t>(bitmap),
         rows, target);
}

void distillation_loss(const DistillationLossArgs& args) {
  const OpLaunch launch("distillation_loss",
                        {&args.logits, &args.target.logits, &args.target.ids, &args.target.log_probs, &args.target.tail,
                         &args.labels, &args.losses, &args.cross_entropies, &args.divergences, &args.dlogits});
  const DType gradient = args.dlogits.defined() ? args.dlogits.dtype() : args.logits.dtype();
  const float temperature = args.temperature;
  dispatch<float, bfloat16>(args.logits.dtype(), "distillation_loss", [&]<class T>() {
    dispatch<float, bfloat16>(gradient, "distillation_loss", [&]<class G>() {
      launch_rows<T, G>(launch, args,
                        {.logits = args.logits.data<T>(),
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
                         .divergence_scale = args.grad_scale * args.divergence_weight * temperature});
    });
  });
}

QUENCH_CUDA_KERNEL(distillation_loss_slot, distillation_loss);

}  // namespace
}  // namespace quench::cuda
