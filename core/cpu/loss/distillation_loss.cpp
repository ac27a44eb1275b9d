#include "core/ops/loss/distillation_loss.h"

#include "core/cpu/loss/divergence_terms.h"
#include "core/cpu/parallel.h"
#include "core/ops/loss/cross_entropy.h"
#include "core/ops/loss/hidden_distance.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

template <Divergence divergence, class T, class G>
void rows_of(const DistillationLossArgs& args) {
  const std::int64_t n = args.logits.size(0), vocab = args.logits.size(1);
  const std::int32_t* labels = args.labels.data<std::int32_t>();
  const float per_temperature = 1.0f / args.temperature;
  const DivergenceTerms<divergence> terms{args.beta};
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
      const float whole = log_sum_exp(student, vocab, 1.0f);  // log sum of the cross-entropy
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

template <class T>
void hidden_rows(const HiddenLossArgs& args) {
  const std::int64_t n = args.student.size(0), width = args.student.size(1);
  const std::int32_t* labels = args.labels.data<std::int32_t>();
  float* losses = args.losses.data<float>();
  parallel_ranges(n, n * width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T* student = args.student.data<T>() + i * width;
      const T* teacher = args.teacher.data<T>() + i * width;
      T* gradient = args.dstudent.data<T>() + i * width;
      if (labels[i] == kIgnoreLabel) {
        losses[i] = 0;
        std::fill(gradient, gradient + width, T(0.0f));
        continue;
      }
      RowSum differences, students, teachers, both;
      for_vectors(width, [&](std::int64_t j, auto count) {
        const F32 s = load(student + j, count), t = load(teacher + j, count), d = s - t;
        differences.add(d * d);
        students.add(s * s);
        teachers.add(t * t);
        both.add(s * t);
      });
      const HiddenRow row =
          hidden_row(args.distance, {differences.value(), students.value(), teachers.value(), both.value()},
                     static_cast<float>(width));
      losses[i] = row.loss;
      const float scale = args.grad_scale;
      for_vectors(width, [&](std::int64_t j, auto count) {
        const F32 s = load(student + j, count), t = load(teacher + j, count);
        store(gradient + j, (s - t) * (row.difference * scale) + (s * row.student + t * row.teacher) * scale, count);
      });
    }
  });
}

void hidden_loss_kernel(const HiddenLossArgs& args) {
  dispatch<float, bfloat16>(args.student.dtype(), "hidden_loss", [&]<class T>() { hidden_rows<T>(args); });
}

QUENCH_CPU_KERNEL(hidden_loss_slot, hidden_loss_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
