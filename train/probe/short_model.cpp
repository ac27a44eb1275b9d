#include "train/probe/short_model.h"

#include <algorithm>

#include "train/session/model_setup.h"
#include "train/session/optimizer_setup.h"
#include "train/step/train_step.h"

namespace quench {

nn::ModelConfig cut_model(nn::ModelConfig model, const ShortModelSize& size) {
  model.num_hidden_layers = std::min(model.num_hidden_layers, size.layers);
  model.vocab_size = std::min(model.vocab_size, size.vocabulary);
  return model;
}

Batch cut_vocabulary(const Batch& batch, std::int64_t vocabulary, Device device) {
  const auto cut = [&](const Tensor& ids) {
    const Tensor result = Tensor::empty_pinned(ids.shape(), DType::i32, device);
    const auto* from = ids.data<std::int32_t>();
    // Negative labels are ignored.
    std::transform(from, from + ids.numel(), result.data<std::int32_t>(),
                   [&](std::int32_t id) { return id < 0 ? id : static_cast<std::int32_t>(id % vocabulary); });
    return result;
  };
  Batch result = batch;
  result.input_ids = cut(batch.input_ids);
  result.labels = cut(batch.labels);
  return result;
}

ShortModel::ShortModel(const RunConfig& config, const nn::ModelConfig& cut, Batch batch, std::int64_t micro_batches,
                       Device device)
    : config_(config), device_(device), model_(std::make_unique<nn::CausalLm>(cut, parameter_options(config, device))) {
  model_->initialize(static_cast<std::uint64_t>(config.training.seed));
  batches_.assign(static_cast<std::size_t>(micro_batches), batch);
}

double ShortModel::milliseconds(const recipes::Recipe& recipe, const recipes::LayerFilter& filter,
                                const TimingOptions& timing) {
  (void)recipes::apply_recipe(*model_, recipes::kBf16, {});
  (void)recipes::apply_recipe(*model_, recipe, filter, recipe_options(config_, device_));
  // New optimizer: depends on the layers' kernels.
  const std::unique_ptr<nn::Optimizer> optimizer = make_optimizer(*model_, config_);
  TrainStep step(*model_, *optimizer,
                 {.recompute = recompute_level(config_.training.activation_checkpoint),
                  .loss = loss_options(config_, model_->config().vocab_size, device_),
                  .max_norm = config_.training.max_norm});
  std::int64_t number = 0;
  const double result = median_milliseconds(device_, timing, [&] {
    (void)step.accumulate(batches_, ++number);
    step.apply(0.0, number);
  });
  optimizer->zero_grad();
  return result;
}

}  // namespace quench
