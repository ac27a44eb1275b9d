#include "train/probe/short_model.h"

#include <algorithm>

#include "train/session/run_session.h"

namespace quench {

nn::ModelConfig cut_model(nn::ModelConfig model, const ShortModelSize& size) {
  model.num_hidden_layers = std::min(model.num_hidden_layers, size.layers);
  model.blocks.resize(static_cast<std::size_t>(model.num_hidden_layers));
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

ShortModel::ShortModel(const RunConfig& config, nn::ModelConfig cut, const Batch& batch, std::int64_t micro_batches,
                       Device device)
    : config_(config), cut_(std::move(cut)), device_(device), batches_(static_cast<std::size_t>(micro_batches), batch) {
  config_.lora.reset();
  config_.objectives = {};
  config_.model.init = ModelSection::Init::random;
  config_.metrics.health_every = 0;
  config_.training.freeze.clear();
  config_.training.train.clear();
  config_.training.offload_layers = config_.training.recompute_mlp_layers = 0;
  config_.optimizer.offload_ratio = 0;
  config_.optimizer.offload_streamed = config_.optimizer.update_in_backward = false;
}

double ShortModel::milliseconds(std::string_view recipe, const recipes::LayerFilter& filter,
                                const TimingOptions& timing) const {
  RunConfig config = config_;
  config.recipe.name = recipe;
  config.recipe.filter = {filter.include, filter.exclude, filter.skip_first_layers, filter.skip_last_layers};
  RunSession session(ResolvedConfig(std::move(config)), {.device = device_, .model = cut_});
  session.add_optimizer();
  session.add_step();
  session.fill();
  std::int64_t number = 0;
  return median_milliseconds(device_, timing, [&] {
    (void)session.step()->accumulate(batches_, ++number);
    session.step()->apply(0.0, number);
  });
}

}  // namespace quench
