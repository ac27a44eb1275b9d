#include "core/ops/loss/distillation_loss.h"

#include <algorithm>
#include <vector>

#include "core/cpu/loss/divergence_terms.h"
#include "core/cpu/parallel.h"
#include "core/ops/loss/cross_entropy.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// `use(j, count, p, q, term)` for vectors of outcomes, whose log-probabilities `log_probs(j, count)` of teacher and
// student are -inf after the last.
template <Divergence divergence, class LogProbs, class Use>
QUENCH_INLINE void for_outcomes(std::int64_t outcomes, float beta, const LogProbs& log_probs, const Use& use) {
  const DivergenceTerms<divergence> terms{beta};
  for_vectors(outcomes, [&](std::int64_t j, auto count) {
    std::pair<F32, F32> x = log_probs(j, count);
    if (count < kLanes) {
      const auto inside = lane_numbers() < static_cast<std::int32_t>(count);
      x = {select(inside, x.first, broadcast(-INFINITY)), select(inside, x.second, broadcast(-INFINITY))};
    }
    const F32 p = exp(x.first), q = exp(x.second);
    use(j, count, p, q, terms(x.first, x.second, p, q));
  });
}

// D, and the sum of q g of reverse KL and Jensen-Shannon.
struct DivergenceSums {
  float divergence, centre;
};

template <Divergence divergence, class LogProbs>
QUENCH_INLINE DivergenceSums sum_outcomes(std::int64_t outcomes, float beta, const LogProbs& log_probs) {
  RowSum sum, mean;
  for_outcomes<divergence>(outcomes, beta, log_probs,
                           [&](std::int64_t, auto, F32, F32 q, const std::pair<F32, F32>& term) {
                             sum.add(term.first);
                             mean.add(q * term.second);
                           });
  return {sum.value(), mean.value()};
}

// T dD / dz.
template <Divergence divergence>
QUENCH_INLINE F32 slope(F32 p, F32 q, const std::pair<F32, F32>& term, float centre) {
  return divergence == Divergence::forward_kl ? q - p : q * (term.second - centre);
}

// Factors of the gradients, and the log sum of the cross-entropy.
struct RowGradient {
  float divergence, label;
  float log_sum;
};

// Rows against the teacher's logits.
template <Divergence divergence, class T>
class DenseTarget {
 public:
  explicit DenseTarget(const DistillationLossArgs& args)
      : teachers_(args.target.logits.data<T>()),
        vocab_(args.logits.size(1)),
        per_temperature_(1.0f / args.temperature),
        beta_(args.beta) {}

  // D of row i, whose `log_sum` is at temperature 1.
  float diverge(std::int64_t i, const T* student, float log_sum) {
    student_ = student;
    teacher_ = teachers_ + i * vocab_;
    of_student_ = per_temperature_ == 1.0f ? log_sum : log_sum_exp(student, vocab_, per_temperature_);
    of_teacher_ = log_sum_exp(teacher_, vocab_, per_temperature_);
    const DivergenceSums sums = sum_outcomes<divergence>(vocab_, beta_, log_probs());
    centre_ = sums.centre;
    return sums.divergence;
  }

  // Returns the divergence's gradient of `label`.
  template <class G>
  float differentiate(G* gradient, std::int32_t label, const RowGradient& scale) const {
    float label_gradient = 0;
    for_outcomes<divergence>(vocab_, beta_, log_probs(),
                             [&, student = student_, centre = centre_](std::int64_t j, auto count, F32 p, F32 q,
                                                                       const std::pair<F32, F32>& term) {
                               F32 g = slope<divergence>(p, q, term, centre);
                               g *= scale.divergence;
                               if (label >= j && label < j + kLanes) label_gradient = g[label - j];
                               if (scale.label != 0) g += scale.label * exp(load(student + j, count) - scale.log_sum);
                               store(gradient + j, g, count);
                             });
    return label_gradient;
  }

 private:
  [[nodiscard]] auto log_probs() const {
    return [student = student_, teacher = teacher_, per_temperature = per_temperature_, of_student = of_student_,
            of_teacher = of_teacher_](std::int64_t j, auto count) {
      return std::pair<F32, F32>(load(teacher + j, count) * per_temperature - of_teacher,
                                 load(student + j, count) * per_temperature - of_student);
    };
  }

  const T *teachers_, *teacher_ = nullptr, *student_ = nullptr;
  std::int64_t vocab_;
  float per_temperature_, beta_;
  float of_student_ = 0, of_teacher_ = 0, centre_ = 0;
};

float log_add(float a, float b) {
  const float most = std::max(a, b);
  return most == -INFINITY ? most : most + std::log(std::exp(a - most) + std::exp(b - most));
}

// Rows against K + 1 outcomes, the last all tokens that are not kept.
template <Divergence divergence, class T>
class TopKTarget {
 public:
  explicit TopKTarget(const DistillationLossArgs& args)
      : target_(args.target),
        vocab_(args.logits.size(1)),
        k_(args.target.ids.size(1)),
        per_temperature_(1.0f / args.temperature),
        beta_(args.beta),
        rest_(static_cast<std::size_t>(vocab_)),
        kept_(static_cast<std::size_t>(k_)),
        teacher_(kept_.size() + 1),
        student_(kept_.size() + 1),
        slope_(kept_.size() + 1) {}

  float diverge(std::int64_t i, const T* student, float /*log_sum*/) {
    logits_ = student;
    ids_ = target_.ids.template data<std::int32_t>() + i * k_;
    for_vectors(vocab_, [&](std::int64_t j, auto count) {
      store(rest_.data() + j, load(student + j, count) * per_temperature_, count);
    });
    for (std::int64_t j = 0; j < k_; ++j) {
      const auto at = static_cast<std::size_t>(j);
      kept_[at] = student[ids_[j]];
      student_[at] = kept_[at] * per_temperature_;
      teacher_[at] = target_.log_probs.template data<float>()[i * k_ + j];
      rest_[static_cast<std::size_t>(ids_[j])] = -INFINITY;
    }
    log_rest_ = log_sum_exp(rest_.data(), vocab_, 1.0f);
    student_.back() = log_rest_;
    teacher_.back() = target_.tail.template data<float>()[i];
    const float of_student = log_add(log_sum_exp(student_.data(), k_, 1.0f), log_rest_);
    const float of_teacher = log_sum_exp(teacher_.data(), k_ + 1, 1.0f);
    for (float& x : student_) x -= of_student;
    for (float& x : teacher_) x -= of_teacher;
    const auto log_probs = [&](std::int64_t j, auto count) {
      return std::pair<F32, F32>(load(teacher_.data() + j, count), load(student_.data() + j, count));
    };
    const DivergenceSums sums = sum_outcomes<divergence>(k_ + 1, beta_, log_probs);
    for_outcomes<divergence>(k_ + 1, beta_, log_probs,
                             [&](std::int64_t j, auto count, F32 p, F32 q, const std::pair<F32, F32>& term) {
                               store(slope_.data() + j, slope<divergence>(p, q, term, sums.centre), count);
                             });
    return sums.divergence;
  }

  template <class G>
  float differentiate(G* gradient, std::int32_t label, const RowGradient& scale) const {
    const float of_rest = scale.divergence * slope_.back(), shift = log_rest_ == -INFINITY ? 0.0f : log_rest_;
    float label_gradient = of_rest * std::exp(rest_[static_cast<std::size_t>(label)] - shift);
    for_vectors(vocab_, [&](std::int64_t j, auto count) {
      F32 g = of_rest * exp(load(rest_.data() + j, count) - shift);
      if (scale.label != 0) g += scale.label * exp(load(logits_ + j, count) - scale.log_sum);
      store(gradient + j, g, count);
    });
    for (std::int64_t j = 0; j < k_; ++j) {
      const auto at = static_cast<std::size_t>(j);
      const float g = scale.divergence * slope_[at];
      if (ids_[j] == label) label_gradient = g;
      gradient[ids_[j]] = G(scale.label != 0 ? g + scale.label * std::exp(kept_[at] - scale.log_sum) : g);
    }
    return label_gradient;
  }

 private:
  const DivergenceTarget& target_;
  std::int64_t vocab_, k_;
  float per_temperature_, beta_;
  const T* logits_ = nullptr;
  const std::int32_t* ids_ = nullptr;
  std::vector<float> rest_;               // scaled logits; -inf for kept tokens
  std::vector<float> kept_;               // logits
  std::vector<float> teacher_, student_;  // log-probabilities
  std::vector<float> slope_;              // dD / d log-odds, of the student
  float log_rest_ = 0;
};

template <class Target, class T, class G>
void loss_rows(const DistillationLossArgs& args) {
  const std::int64_t n = args.logits.size(0), vocab = args.logits.size(1);
  const std::int32_t* labels = args.labels.data<std::int32_t>();
  const float weight = args.divergence_weight * args.temperature * args.temperature;
  parallel_ranges(n, 4 * n * vocab, [&](std::int64_t begin, std::int64_t end) {
    Target target(args);
    for (std::int64_t i = begin; i < end; ++i) {
      const T* student = args.logits.data<T>() + i * vocab;
      G* gradient = args.dlogits.defined() ? args.dlogits.data<G>() + i * vocab : nullptr;
      const std::int32_t label = labels[i];
      if (label == kIgnoreLabel) {
        for (const Tensor& out : {args.losses, args.cross_entropies, args.divergences}) out.data<float>()[i] = 0.0f;
        if (gradient != nullptr) std::fill(gradient, gradient + vocab, G(0.0f));
        continue;
      }
      const float label_logit = student[label], log_sum = log_sum_exp(student, vocab, 1.0f);
      const float d = target.diverge(i, student, log_sum);
      args.divergences.data<float>()[i] = d;
      args.cross_entropies.data<float>()[i] = log_sum - label_logit;
      args.losses.data<float>()[i] = args.cross_entropy_weight * (log_sum - label_logit) + weight * d;
      if (gradient == nullptr) continue;
      const RowGradient scale{.divergence = args.grad_scale * args.divergence_weight * args.temperature,
                              .label = args.grad_scale * args.cross_entropy_weight,
                              .log_sum = log_sum};
      const float of_label = scale.label != 0 ? scale.label * (std::exp(label_logit - log_sum) - 1.0f) : 0.0f;
      const float of_divergence = target.differentiate(gradient, label, scale);
      if (scale.label != 0) gradient[label] = G(of_divergence + of_label);
    }
  });
}

template <Divergence divergence, class T, class G>
void loss_of(const DistillationLossArgs& args) {
  if (args.target.is_top_k())
    loss_rows<TopKTarget<divergence, T>, T, G>(args);
  else
    loss_rows<DenseTarget<divergence, T>, T, G>(args);
}

void distillation_loss_kernel(const DistillationLossArgs& args) {
  const DType gradient = args.dlogits.defined() ? args.dlogits.dtype() : args.logits.dtype();
  dispatch<float, bfloat16>(args.logits.dtype(), "distillation_loss", [&]<class T>() {
    dispatch<float, bfloat16>(gradient, "distillation_loss", [&]<class G>() {
      switch (args.divergence) {
        case Divergence::forward_kl: return loss_of<Divergence::forward_kl, T, G>(args);
        case Divergence::reverse_kl: return loss_of<Divergence::reverse_kl, T, G>(args);
        case Divergence::jensen_shannon: return loss_of<Divergence::jensen_shannon, T, G>(args);
      }
    });
  });
}

QUENCH_CPU_KERNEL(distillation_loss_slot, distillation_loss_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
