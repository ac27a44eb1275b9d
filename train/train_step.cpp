#include "train/train_step.h"

#include "core/ops/global_norm.h"

namespace quench {
namespace {

// The one number of a tensor, on the host; 0 on the planning device.
template <class T>
double host_value(const Tensor& tensor) {
  if (tensor.device().is_meta()) return 0;
  return static_cast<double>(*tensor.to(Device{}).template data<T>());
}

}  // namespace

nn::ForwardContext batch_context(const nn::CausalLm& model, const Batch& batch) {
  return model.make_context(batch.sequences, batch.input_ids.numel());
}

TrainStep::TrainStep(nn::CausalLm& model, nn::AdamW& optimizer, TrainStepOptions options)
    : model_(model), optimizer_(optimizer), options_(options) {
  const MemoryScope scope(MemoryCategory::optimizer);
  const Device device = model.options().device;
  squared_norm_ = Tensor::empty({1}, DType::f64, device);
  norm_ = Tensor::empty({1}, DType::f32, device);
  scale_ = Tensor::empty({1}, DType::f32, device);
}

GradientReport TrainStep::accumulate(std::span<const Batch> micro_batches) {
  optimizer_.zero_grad();
  GradientReport report;
  for (const Batch& batch : micro_batches) report.valid_tokens += batch.valid_tokens;
  if (report.valid_tokens == 0) return report;
  const float scale = 1.0f / static_cast<float>(report.valid_tokens);
  const Device device = model_.options().device;
  for (const Batch& batch : micro_batches) {
    if (batch.valid_tokens == 0) continue;
    const std::int64_t tokens = batch.input_ids.numel();
    nn::ForwardContext context = batch_context(model_, batch);
    context.recompute = options_.recompute;
    autograd::Tape tape(options_.recompute);
    autograd::Variable loss;
    {
      const autograd::TapeScope scope(tape);
      loss = model_.loss(batch.input_ids.view({tokens}).to(device), batch.labels.view({tokens}).to(device), context,
                         scale, options_.loss_chunk_rows);
    }
    tape.backward(loss);
    report.loss += host_value<float>(loss.value());
  }
  optimizer_.squared_grad_norm(squared_norm_);
  clip_scale({.squared_norm = squared_norm_,
              .max_norm = static_cast<float>(options_.max_norm),
              .norm = norm_,
              .scale = scale_});
  report.grad_norm = host_value<float>(norm_);
  return report;
}

void TrainStep::apply(double lr, std::int64_t step) {
  optimizer_.step(lr, step, scale_);
  optimizer_.zero_grad();
}

}  // namespace quench
