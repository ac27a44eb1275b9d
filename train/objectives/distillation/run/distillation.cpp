#include "train/objectives/distillation/run/distillation.h"

#include "core/ops/reduce_sum.h"

namespace quench {
namespace {

// Distillation loss of the chunks of one micro-batch.
class RowLoss final : public LogitsLoss {
 public:
  RowLoss(TargetRows& targets, const Tensor& labels, const DistillationOptions& options)
      : targets_(targets),
        options_(options),
        cross_entropies_(Tensor::empty({labels.numel()}, DType::f32, labels.device())),
        divergences_(Tensor::empty_like(cross_entropies_)) {}

  void run(const CrossEntropyArgs& chunk, std::int64_t first_row) override {
    const std::int64_t rows = chunk.logits.size(0);
    distillation_loss({.logits = chunk.logits,
                       .target = targets_.of(chunk, first_row),
                       .labels = chunk.labels,
                       .losses = chunk.losses,
                       .cross_entropies = cross_entropies_.narrow(0, first_row, rows),
                       .divergences = divergences_.narrow(0, first_row, rows),
                       .dlogits = chunk.dlogits,
                       .divergence = options_.divergence,
                       .temperature = options_.temperature,
                       .beta = options_.beta,
                       .cross_entropy_weight = 1.0f - options_.ratio,
                       .divergence_weight = options_.ratio,
                       .grad_scale = chunk.grad_scale});
  }

  void sum_into(const Tensor& metrics, float scale) const {
    reduce_sum({.x = divergences_, .out = metrics.narrow(0, 0, 1), .scale = scale});
    reduce_sum({.x = cross_entropies_, .out = metrics.narrow(0, 1, 1), .scale = scale});
  }

 private:
  TargetRows& targets_;
  const DistillationOptions& options_;
  Tensor cross_entropies_, divergences_;
};

}  // namespace

DistillationObjective::DistillationObjective(const nn::CausalLm& student, std::unique_ptr<TargetSource> targets,
                                             DistillationOptions options)
    : student_(student), targets_(std::move(targets)), options_(std::move(options)) {
  if (!options_.hidden.layers.empty()) states_.emplace(options_.hidden.layers);
}

std::vector<std::string> DistillationObjective::metric_names() const {
  std::vector<std::string> names = {"divergence", "cross_entropy"};
  if (states_) names.emplace_back("hidden_states");
  return names;
}

void DistillationObjective::prepare(const ObjectiveInput& in) {
  targets_->prepare(in, states_ ? &*states_ : nullptr);
}

autograd::Variable DistillationObjective::loss(const ObjectiveInput& in, float scale, const LmHeadLossOptions& options,
                                               const Tensor& metrics) {
  nn::ForwardContext context = in.context;
  std::optional<StudentStates> states;
  if (states_) context.layer_outputs = &states.emplace(options_.hidden, *states_, in.labels, scale);
  const autograd::Variable hidden = student_.hidden(in.ids, context);
  const std::unique_ptr<TargetRows> targets = targets_->take_rows();
  RowLoss rows(*targets, in.labels, options_);
  autograd::Variable loss = student_.head_loss(hidden, in.labels, scale, options, nullptr, &rows);
  rows.sum_into(metrics, scale);
  if (states) states->add_to(loss.value(), metrics.narrow(0, 2, 1));
  return loss;
}

}  // namespace quench
