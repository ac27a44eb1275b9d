#include "train/objectives/distillation/run/stored_distillation.h"

#include "core/ops/loss/top_k_distillation_loss.h"
#include "core/ops/reduce_sum.h"

namespace quench {
namespace {

// Distillation loss of the chunks of one micro-batch.
class TargetLoss final : public LogitsLoss {
 public:
  TargetLoss(Tensor ids, Tensor log_probs, Tensor tail, const DistillationOptions& options)
      : ids_(std::move(ids)), log_probs_(std::move(log_probs)), tail_(std::move(tail)), options_(options) {
    cross_entropies_ = Tensor::empty_like(tail_);
    divergences_ = Tensor::empty_like(tail_);
  }

  void run(const CrossEntropyArgs& chunk, std::int64_t first_row) override {
    const std::int64_t rows = chunk.logits.size(0);
    const auto part = [&](const Tensor& whole) { return whole.narrow(0, first_row, rows); };
    top_k_distillation_loss({.logits = chunk.logits,
                             .ids = part(ids_),
                             .log_probs = part(log_probs_),
                             .tail = part(tail_),
                             .labels = chunk.labels,
                             .losses = chunk.losses,
                             .cross_entropies = part(cross_entropies_),
                             .divergences = part(divergences_),
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
  Tensor ids_, log_probs_, tail_;
  DistillationOptions options_;
  Tensor cross_entropies_, divergences_;
};

}  // namespace

void StoredDistillationObjective::prepare(const ObjectiveInput& in) {
  const MemoryScope scope(MemoryCategory::data);
  const std::int64_t n = in.labels.numel();
  const Device device = in.labels.device();
  if (of_run_.targets == nullptr) {
    ids_ = Tensor::empty({n, k_}, DType::i32, device);
    log_probs_ = Tensor::empty({n, k_}, DType::f32, device);
    tail_ = Tensor::empty({n}, DType::f32, device);
    return;
  }
  const Tensor ids = Tensor::empty_pinned({n, k_}, DType::i32, device),
               log_probs = Tensor::empty_pinned({n, k_}, DType::f32, device),
               tail = Tensor::empty_pinned({n}, DType::f32, device);
  of_run_.targets->fill(*of_run_.data, in.batch, ids, log_probs, tail);
  ids_ = ids.to(device);
  log_probs_ = log_probs.to(device);
  tail_ = tail.to(device);
}

autograd::Variable StoredDistillationObjective::loss(const ObjectiveInput& in, float scale,
                                                     const LmHeadLossOptions& options, const Tensor& metrics) {
  const autograd::Variable hidden = student_.hidden(in.ids, in.context);
  TargetLoss rows(std::move(ids_), std::move(log_probs_), std::move(tail_), options_);
  autograd::Variable loss = student_.head_loss(hidden, in.labels, scale, options, nullptr, &rows);
  rows.sum_into(metrics, scale);
  return loss;
}

}  // namespace quench
