#include "train/objectives/distillation/run/hidden_states.h"

#include <algorithm>

#include "autograd/functions.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce_sum.h"

namespace quench {

bool TeacherStates::takes(std::int64_t layer) const {
  return std::ranges::find(pairs_, layer, &LayerPair::teacher) != pairs_.end();
}

autograd::Variable TeacherStates::take(std::int64_t layer, const autograd::Variable& hidden) {
  for (std::size_t i = 0; i < pairs_.size(); ++i)
    if (pairs_[i].teacher == layer) states_[i] = hidden.value();
  return hidden;
}

StudentStates::StudentStates(const HiddenOptions& options, TeacherStates& teacher, const Tensor& labels, float scale)
    : options_(options), teacher_(teacher), labels_(labels), scale_(scale / static_cast<float>(options.layers.size())) {
  const MemoryScope scope(MemoryCategory::activations);
  sums_ = Tensor::zeros({labels.size(0)}, DType::f32, labels.device());
}

bool StudentStates::takes(std::int64_t layer) const {
  return std::ranges::find(options_.layers, layer, &LayerPair::student) != options_.layers.end();
}

autograd::Variable StudentStates::take(std::int64_t layer, const autograd::Variable& hidden) {
  const MemoryScope scope(MemoryCategory::activations);
  const auto pair = std::ranges::find(options_.layers, layer, &LayerPair::student);
  const Tensor losses = Tensor::empty_like(sums_), gradient = Tensor::empty_like(hidden.value());
  hidden_loss({.student = hidden.value(),
               .teacher = teacher_.release(static_cast<std::size_t>(pair - options_.layers.begin())),
               .labels = labels_,
               .losses = losses,
               .dstudent = gradient,
               .distance = options_.distance,
               .grad_scale = scale_ * options_.weight});
  accumulate({.x = losses, .out = sums_});
  return autograd::add_gradient(hidden, gradient);
}

void StudentStates::add_to(const Tensor& loss, const Tensor& metric) const {
  reduce_sum({.x = sums_, .out = metric, .scale = scale_});
  accumulate({.x = metric, .out = loss, .scale = options_.weight});
}

}  // namespace quench
