#include "core/ops/loss/hidden_distance.h"

#include "core/cpu/loss/divergence_terms.h"
#include "core/cpu/parallel.h"
#include "core/ops/loss/cross_entropy.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

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
