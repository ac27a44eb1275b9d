#include "train/objectives/distillation/run/distillation.h"

#include "core/memory/memory_part.h"
#include "core/ops/reduce_sum.h"

namespace quench {
namespace {

// Distillation loss of the chunks of one micro-batch.
class TeacherLoss final : public LogitsLoss {
 public:
  TeacherLoss(Teacher::Head& head, Tensor hidden, const DistillationOptions& options)
      : head_(head), hidden_(std::move(hidden)), options_(options) {
    cross_entropies_ = Tensor::empty({hidden_.size(0)}, DType::f32, hidden_.device());
    divergences_ = Tensor::empty_like(cross_entropies_);
  }

  void run(const CrossEntropyArgs& chunk, std::int64_t first_row) override {
    const std::int64_t rows = chunk.logits.size(0);
    if (!logits_.defined()) {
      const MemoryPartScope part(MemoryPart::logits);
      logits_ = Tensor::empty_like(chunk.logits);  // the first chunk is the largest
    }
    const Tensor teacher = logits_.narrow(0, 0, rows);
    head_.logits(hidden_.narrow(0, first_row, rows), teacher);
    distillation_loss({.logits = chunk.logits,
                       .teacher = teacher,
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
  Teacher::Head& head_;
  Tensor hidden_;
  DistillationOptions options_;
  Tensor logits_, cross_entropies_, divergences_;
};

}  // namespace

DistillationObjective::DistillationObjective(const nn::CausalLm& student, std::unique_ptr<Teacher> teacher,
                                             DistillationOptions options)
    : student_(student), teacher_(std::move(teacher)), options_(std::move(options)) {
  if (!options_.hidden.layers.empty()) states_.emplace(options_.hidden.layers);
}

std::vector<std::string> DistillationObjective::metric_names() const {
  std::vector<std::string> names = {"divergence", "cross_entropy"};
  if (states_) names.emplace_back("hidden_states");
  return names;
}

void DistillationObjective::prepare(const ObjectiveInput& in) {
  hidden_ = teacher_->hidden(in, states_ ? &*states_ : nullptr);
}

autograd::Variable DistillationObjective::loss(const ObjectiveInput& in, float scale, const LmHeadLossOptions& options,
                                               const Tensor& metrics) {
  nn::ForwardContext context = in.context;
  std::optional<StudentStates> states;
  if (states_) context.layer_outputs = &states.emplace(options_.hidden, *states_, in.labels, scale);
  const autograd::Variable hidden = student_.hidden(in.ids, context);
  const std::unique_ptr<Teacher::Head> head = teacher_->head();
  TeacherLoss rows(*head, std::move(hidden_), options_);
  autograd::Variable loss = student_.head_loss(hidden, in.labels, scale, options, nullptr, &rows);
  rows.sum_into(metrics, scale);
  if (states) states->add_to(loss.value(), metrics.narrow(0, 2, 1));
  return loss;
}

}  // namespace quench
