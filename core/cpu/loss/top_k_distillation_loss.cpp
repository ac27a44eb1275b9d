#include "core/ops/loss/top_k_distillation_loss.h"

#include <algorithm>
#include <vector>

#include "core/cpu/loss/divergence_terms.h"
#include "core/cpu/parallel.h"
#include "core/ops/loss/cross_entropy.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

float log_add(float a, float b) {
  const float most = std::max(a, b);
  return most == -INFINITY ? most : most + std::log(std::exp(a - most) + std::exp(b - most));
}

// The K + 1 outcomes of a row, the last all tokens that are not kept.
struct Outcomes {
  explicit Outcomes(std::int64_t k)
      : kept(static_cast<std::size_t>(k)), teacher(kept.size() + 1), student(kept.size() + 1), slope(kept.size() + 1) {}

  std::vector<float> kept;              // logits
  std::vector<float> teacher, student;  // log-probabilities
  std::vector<float> slope;             // dD / d log-odds, of the student

  [[nodiscard]] std::int64_t count() const { return std::ssize(teacher); }
};

// D; sets the slopes.
template <Divergence divergence>
float diverge(Outcomes& o, float beta) {
  const DivergenceTerms<divergence> terms{beta};
  const auto at = [&](std::int64_t j, auto count, const auto& use) {
    F32 a = load(o.teacher.data() + j, count), b = load(o.student.data() + j, count);
    if (count < kLanes) {
      const auto inside = lane_numbers() < static_cast<std::int32_t>(count);
      a = select(inside, a, broadcast(-INFINITY));
      b = select(inside, b, broadcast(-INFINITY));
    }
    const F32 p = exp(a), q = exp(b);
    use(p, q, terms(a, b, p, q));
  };
  RowSum sum, mean;
  for_vectors(o.count(), [&](std::int64_t j, auto count) {
    at(j, count, [&](F32, F32 q, std::pair<F32, F32> term) {
      sum.add(term.first);
      mean.add(q * term.second);
    });
  });
  const float centre = mean.value();
  for_vectors(o.count(), [&](std::int64_t j, auto count) {
    at(j, count, [&](F32 p, F32 q, std::pair<F32, F32> term) {
      store(o.slope.data() + j, divergence == Divergence::forward_kl ? q - p : q * (term.second - centre), count);
    });
  });
  return sum.value();
}

template <Divergence divergence, class T, class G>
void top_k_loss_rows(const TopKDistillationLossArgs& args) {
  const std::int64_t n = args.logits.size(0), vocab = args.logits.size(1), k = args.ids.size(1);
  const float per_temperature = 1.0f / args.temperature;
  const float of_divergence = args.grad_scale * args.divergence_weight * args.temperature;
  const float of_label = args.grad_scale * args.cross_entropy_weight;
  parallel_ranges(n, 4 * n * vocab, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> rest(static_cast<std::size_t>(vocab));  // scaled logits; -inf for kept tokens
    Outcomes o(k);
    for (std::int64_t i = begin; i < end; ++i) {
      const T* student = args.logits.data<T>() + i * vocab;
      const std::int32_t* ids = args.ids.data<std::int32_t>() + i * k;
      G* gradient = args.dlogits.defined() ? args.dlogits.data<G>() + i * vocab : nullptr;
      const std::int32_t label = args.labels.data<std::int32_t>()[i];
      if (label == kIgnoreLabel) {
        for (const Tensor& out : {args.losses, args.cross_entropies, args.divergences}) out.data<float>()[i] = 0.0f;
        if (gradient != nullptr) std::fill(gradient, gradient + vocab, G(0.0f));
        continue;
      }
      const float label_logit = student[label], whole = log_sum_exp(student, vocab, 1.0f);
      for_vectors(vocab, [&](std::int64_t j, auto count) {
        store(rest.data() + j, load(student + j, count) * per_temperature, count);
      });
      for (std::int64_t j = 0; j < k; ++j) {
        const auto at = static_cast<std::size_t>(j);
        o.kept[at] = student[ids[j]];
        o.student[at] = o.kept[at] * per_temperature;
        o.teacher[at] = args.log_probs.data<float>()[i * k + j];
        rest[static_cast<std::size_t>(ids[j])] = -INFINITY;
      }
      const float log_rest = log_sum_exp(rest.data(), vocab, 1.0f);
      o.student.back() = log_rest;
      o.teacher.back() = args.tail.data<float>()[i];
      const float of_student = log_add(log_sum_exp(o.student.data(), k, 1.0f), log_rest);
      const float of_teacher = log_sum_exp(o.teacher.data(), k + 1, 1.0f);
      for (float& x : o.student) x -= of_student;
      for (float& x : o.teacher) x -= of_teacher;
      const float d = diverge<divergence>(o, args.beta);
      args.divergences.data<float>()[i] = d;
      args.cross_entropies.data<float>()[i] = whole - label_logit;
      args.losses.data<float>()[i] = args.cross_entropy_weight * (whole - label_logit) +
                                     args.divergence_weight * args.temperature * args.temperature * d;
      if (gradient == nullptr) continue;
      const float of_rest = of_divergence * o.slope.back(), shift = log_rest == -INFINITY ? 0.0f : log_rest;
      const float before = of_label != 0 ? of_label * (std::exp(label_logit - whole) - 1.0f) : 0.0f;
      float label_gradient = of_rest * std::exp(rest[static_cast<std::size_t>(label)] - shift);
      for_vectors(vocab, [&](std::int64_t j, auto count) {
        F32 g = of_rest * exp(load(rest.data() + j, count) - shift);
        if (of_label != 0) g += of_label * exp(load(student + j, count) - whole);
        store(gradient + j, g, count);
      });
      for (std::int64_t j = 0; j < k; ++j) {
        const auto at = static_cast<std::size_t>(j);
        const float g = of_divergence * o.slope[at];
        if (ids[j] == label) label_gradient = g;
        gradient[ids[j]] = G(of_label != 0 ? g + of_label * std::exp(o.kept[at] - whole) : g);
      }
      if (of_label != 0) gradient[label] = G(label_gradient + before);
    }
  });
}

void top_k_distillation_loss_kernel(const TopKDistillationLossArgs& args) {
  const DType gradient = args.dlogits.defined() ? args.dlogits.dtype() : args.logits.dtype();
  dispatch<float, bfloat16>(args.logits.dtype(), "top_k_distillation_loss", [&]<class T>() {
    dispatch<float, bfloat16>(gradient, "top_k_distillation_loss", [&]<class G>() {
      switch (args.divergence) {
        case Divergence::forward_kl: return top_k_loss_rows<Divergence::forward_kl, T, G>(args);
        case Divergence::reverse_kl: return top_k_loss_rows<Divergence::reverse_kl, T, G>(args);
        case Divergence::jensen_shannon: return top_k_loss_rows<Divergence::jensen_shannon, T, G>(args);
      }
    });
  });
}

QUENCH_CPU_KERNEL(top_k_distillation_loss_slot, top_k_distillation_loss_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
