#pragma once
// Loss on hidden states after decoder layers: the student's are drawn towards the teacher's.

#include <vector>

#include "core/ops/loss/hidden_loss.h"
#include "nn/modules/forward_context.h"

namespace quench {

// Compared layers, from 0.
struct LayerPair {
  std::int64_t student = 0, teacher = 0;
};

struct HiddenOptions {
  std::vector<LayerPair> layers;  // each student layer at most once; empty: no loss
  HiddenDistance distance = HiddenDistance::mse;
  float weight = 1.0f;  // factor of the mean over layers
};

// Teacher layer at the same share of the depth: of equal depths the same layer, of the last layer always the last.
[[nodiscard]] constexpr std::int64_t spread_layer(std::int64_t layer, std::int64_t layers,
                                                  std::int64_t teacher_layers) {
  return ((layer + 1) * teacher_layers + layers - 1) / layers - 1;
}

// Keeps the teacher's compared states [N,H] from its pass until each is released.
class TeacherStates final : public nn::LayerOutputs {
 public:
  // `pairs` must outlive it.
  explicit TeacherStates(const std::vector<LayerPair>& pairs) : pairs_(pairs), states_(pairs.size()) {}
  [[nodiscard]] bool takes(std::int64_t layer) const override;
  [[nodiscard]] autograd::Variable take(std::int64_t layer, const autograd::Variable& hidden) override;
  [[nodiscard]] Tensor release(std::size_t pair) { return std::exchange(states_.at(pair), Tensor()); }

 private:
  const std::vector<LayerPair>& pairs_;
  std::vector<Tensor> states_;  // by pair
};

// Loss of the student's states over rows with labels. The gradient [N,H] of a layer is computed when its state is, and
// kept until the backward pass.
class StudentStates final : public nn::LayerOutputs {
 public:
  // `scale`: of the sum over rows, as in Objective::loss(). References must outlive the forward pass.
  StudentStates(const HiddenOptions& options, TeacherStates& teacher, const Tensor& labels, float scale);
  [[nodiscard]] bool takes(std::int64_t layer) const override;
  [[nodiscard]] autograd::Variable take(std::int64_t layer, const autograd::Variable& hidden) override;

  // After the pass: `metric` f32 [1] = scale * sum over rows of the mean over layers; loss f32 [1] += weight * metric.
  void add_to(const Tensor& loss, const Tensor& metric) const;

 private:
  const HiddenOptions& options_;
  TeacherStates& teacher_;
  Tensor labels_;
  float scale_;  // factor of a layer's sum
  Tensor sums_;  // f32 [N], over layers
};

}  // namespace quench
