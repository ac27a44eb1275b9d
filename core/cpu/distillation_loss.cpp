#include "core/ops/loss/distillation_loss.h"

#include <cmath>

#include "core/cpu/parallel.h"
#include "core/cpu/vector_math.h"
#include "core/ops/loss/cross_entropy.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// log(weight + (1 - weight) e^x) by lane, x <= 0.
QUENCH_INLINE F32 log_mix(float weight, F32 x) {
  const F32 sum = weight + (1.0f - weight) * exp(x);
  F32 result;
  for (int lane = 0; lane < kLanes; ++lane) result[lane] = std::log(sum[lane]);
  return result;
}

// Sum in two levels: error of a few hundred roundings for any row.
class RowSum {
 public:
  QUENCH_INLINE void add(F32 x) {
    part_ += x;
    if (++count_ % kPart != 0) return;
    whole_ += part_;
    part_ = F32{};
  }
  [[nodiscard]] QUENCH_INLINE float value() const { return reduce_add(whole_ + part_); }

 private:
  static constexpr std::int64_t kPart = 64;
  F32 whole_ = {}, part_ = {};
  std::int64_t count_ = 0;
};

template <class T>
float log_sum_exp(const T* row, std::int64_t width, float scale) {
  F32 most = broadcast(-INFINITY);
  RowSum sum;
  const auto values = [&](std::int64_t i, auto count) {
    const F32 x = load(row + i, count) * scale;
    return count < kLanes ? select(lane_numbers() < static_cast<std::int32_t>(count), x, broadcast(-INFINITY)) : x;
  };
  for_vectors(width, [&](std::int64_t i, auto count) { most = max(values(i, count), most); });
  const float shift = reduce_max(most);
  for_vectors(width, [&](std::int64_t i, auto count) { sum.add(exp(values(i, count) - shift)); });
  return shift + std::log(sum.value());
}

// One row: log-probabilities a of the teacher, b of the student.
template <Divergence divergence>
struct Terms {
  float beta;

  // {summand of D, g of dD/dz = q (g - sum of q g) / T}; forward_kl: g is unused.
  QUENCH_INLINE std::pair<F32, F32> operator()(F32 a, F32 b, F32 p, F32 q) const {
    const F32 zero = {};
    if constexpr (divergence == Divergence::forward_kl) {
      return {select(p == zero, zero, p * (a - b)), zero};
    } else if constexpr (divergence == Divergence::reverse_kl) {
      const F32 g = select(q == zero, zero, b - a);
      return {q * g, g};
    } else {
      // log m from the larger of a and b.
      const F32 d = b - a;
      const F32 from_a = a + log_mix(beta, min(d, zero)), from_b = b + log_mix(1.0f - beta, min(-d, zero));
      const F32 mixed = select(d <= zero, from_a, from_b);
      const F32 g = select(q == zero, zero, (1.0f - beta) * (b - mixed));
      return {beta * select(p == zero, zero, p * (a - mixed)) + q * g, g};
    }
  }
};

template <Divergence divergence, class T, class G>
void rows_of(const DistillationLossArgs& args) {
  const std::int64_t n = args.logits.size(0), vocab = args.logits.size(1);
  const std::int32_t* labels = args.labels.data<std::int32_t>();
  const float per_temperature = 1.0f / args.temperature;
  const Terms<divergence> terms{args.beta};
  parallel_ranges(n, 4 * n * vocab, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T* student = args.logits.data<T>() + i * vocab;
      const T* teacher = args.teacher.data<T>() + i * vocab;
      G* gradient = args.dlogits.defined() ? args.dlogits.data<G>() + i * vocab : nullptr;
      const std::int32_t label = labels[i];
      if (label == kIgnoreLabel) {
        for (const Tensor& out : {args.losses, args.cross_entropies, args.divergences}) out.data<float>()[i] = 0.0f;
        if (gradient != nullptr) std::fill(gradient, gradient + vocab, G(0.0f));
        continue;
      }
      const float label_logit = student[label];
      const float whole = log_sum_exp(student, vocab, 1.0f);  // of the cross-entropy
      const float of_student = args.temperature == 1.0f ? whole : log_sum_exp(student, vocab, per_temperature);
      const float of_teacher = log_sum_exp(teacher, vocab, per_temperature);
      const auto at = [&](std::int64_t j, auto count, const auto& use) {
        F32 a = load(teacher + j, count) * per_temperature - of_teacher;
        F32 b = load(student + j, count) * per_temperature - of_student;
        if (count < kLanes) {
          const auto inside = lane_numbers() < static_cast<std::int32_t>(count);
          a = select(inside, a, broadcast(-INFINITY));
          b = select(inside, b, broadcast(-INFINITY));
        }
        const F32 p = exp(a), q = exp(b);
        use(p, q, terms(a, b, p, q));
      };
      RowSum sum, mean;
      for_vectors(vocab, [&](std::int64_t j, auto count) {
        at(j, count, [&](F32, F32 q, std::pair<F32, F32> term) {
          sum.add(term.first);
          mean.add(q * term.second);
        });
      });
      const float d = sum.value(), centre = mean.value();
      args.divergences.data<float>()[i] = d;
      const float weight = args.divergence_weight * args.temperature * args.temperature;
      args.cross_entropies.data<float>()[i] = whole - label_logit;
      args.losses.data<float>()[i] = args.cross_entropy_weight * (whole - label_logit) + weight * d;
      if (gradient == nullptr) continue;
      const float of_divergence = args.grad_scale * args.divergence_weight * args.temperature;
      const float of_label = args.grad_scale * args.cross_entropy_weight;
      const float before = of_label != 0 ? of_label * (std::exp(label_logit - whole) - 1.0f) : 0.0f;
      float label_gradient = 0;
      for_vectors(vocab, [&](std::int64_t j, auto count) {
        at(j, count, [&](F32 p, F32 q, std::pair<F32, F32> term) {
          F32 g = divergence == Divergence::forward_kl ? q - p : q * (term.second - centre);
          g *= of_divergence;
          if (label >= j && label < j + kLanes) label_gradient = g[label - j];
          if (of_label != 0) g += of_label * exp(load(student + j, count) - whole);
          store(gradient + j, g, count);
        });
      });
      if (of_label != 0) gradient[label] = G(label_gradient + before);
    }
  });
}

void distillation_loss_kernel(const DistillationLossArgs& args) {
  const DType gradient = args.dlogits.defined() ? args.dlogits.dtype() : args.logits.dtype();
  dispatch<float, bfloat16>(args.logits.dtype(), "distillation_loss", [&]<class T>() {
    dispatch<float, bfloat16>(gradient, "distillation_loss", [&]<class G>() {
      switch (args.divergence) {
        case Divergence::forward_kl: return rows_of<Divergence::forward_kl, T, G>(args);
        case Divergence::reverse_kl: return rows_of<Divergence::reverse_kl, T, G>(args);
        case Divergence::jensen_shannon: return rows_of<Divergence::jensen_shannon, T, G>(args);
      }
    });
  });
}

QUENCH_CPU_KERNEL(distillation_loss_slot, distillation_loss_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
