#include "train/plan/step_work.h"

#include <algorithm>

#include "train/checkpoint/snapshot.h"

namespace quench {
namespace {

// Memory traffic over a quantized base in a micro-batch: each weight is used by forward and dgrad.
double base_bytes(const RunConfig& config, const ModelSetup& setup, double recomputed) {
  if (!setup.base) return 0;
  double bytes = 0;
  setup.model->visit([&](const std::string& name, nn::Module& module) {
    const auto* linear = dynamic_cast<const nn::Linear*>(&module);
    if (linear == nullptr) return;
    const auto layer = std::ranges::find(setup.conversion, name, &recipes::LayerConversion::name);
    for (const auto& [gemm, uses] :
         {std::pair{recipes::LinearGemm::forward, 1 + recomputed}, {recipes::LinearGemm::dgrad, 1.0}}) {
      const bool float8 = layer != setup.conversion.end() && std::ranges::count(layer->float8, gemm) > 0;
      const bool kept = float8 && config.recipe.keep_weights.value_or(false);
      if (!kept) bytes += uses * static_cast<double>(setup.base->bytes_of_use(linear->weight(), float8));
    }
  });
  return bytes;
}

// Memory traffic of LoRA's thin GEMMs, per token: inputs are read for A and its gradient, output gradients once for
// B's.
double adapter_bytes(const ModelSetup& setup, DType dtype) {
  double columns = 0;
  if (setup.adapters)
    for (const auto& [linear, adapter] : setup.adapters->low_rank()) {
      const nn::LinearInfo info = linear->info({});
      columns += static_cast<double>(2 * info.in_features + info.out_features);
    }
  return columns * static_cast<double>(byte_size(dtype));
}

}  // namespace

std::int64_t micro_batch_tokens(const RunConfig& config) {
  return config.training.micro_batch_size * config.data.seq_len / config.parallel.context;
}

StepWork step_work(const RunConfig& config, const ModelSetup& setup, std::span<const CheckpointTensor> state,
                   std::int64_t micro_batches, const RunEstimate& e) {
  StepWork work;
  const nn::ModelConfig& model = setup.config;
  work.flops_per_token = e.flops_per_token;
  work.attention_flops_per_token =
      model.training_flops_per_token(config.data.seq_len) - model.training_flops_per_token(0);
  work.seq_len = static_cast<double>(config.data.seq_len);
  if (config.training.activation_checkpoint == TrainingSection::ActivationCheckpoint::full) work.recomputed = 1;
  const autograd::ActivationPolicy policy = activation_policy(config, model);
  if (policy.layers() > 0)
    work.kept_attention =
        work.recomputed * static_cast<double>(policy.kept_attention()) / static_cast<double>(policy.layers());
  // Slices of the weights do their part of the work of each token, stages that of their layers.
  work.tokens = static_cast<double>(micro_batch_tokens(config) * micro_batches) /
                static_cast<double>(e.mesh.tensor * e.mesh.pipeline);
  work.bubble =
      static_cast<double>(e.mesh.pipeline - 1) / static_cast<double>(micro_batches * config.parallel.chunks());
  add_activation_work(model, e.flops_per_token, work.tokens, work);
  work.base_bytes = base_bytes(config, setup, work.recomputed) * static_cast<double>(micro_batches);
  work.adapter_bytes = adapter_bytes(setup, e.dtype) * work.tokens * static_cast<double>(e.mesh.tensor);
  // Parameters and moments: read and written; gradients: read for norm and update.
  work.update_bytes = 2 * static_cast<double>(snapshot_bytes(state));
  for (const nn::Parameter* parameter : setup.model->parameters())
    if (parameter->variable.requires_grad())
      work.update_bytes += 2.0 * static_cast<double>(parameter->variable.value().numel()) *
                           static_cast<double>(byte_size(e.ranks > e.mesh.tensor * e.mesh.pipeline
                                                             ? config.parallel.reduce_dtype
                                                             : config.training.grad_dtype.value_or(e.dtype)));
  // The embedding is all-gathered first, its gradient reduced last.
  const std::int64_t copy = std::max<std::int64_t>(e.mesh.copy(), 1);
  const double sent = static_cast<double>(model.vocab_size / e.mesh.tensor * model.hidden_size * (copy - 1)) /
                      static_cast<double>(copy);
  work.first_bytes = sent * static_cast<double>(byte_size(config.training.dtype));
  work.last_bytes = sent * static_cast<double>(byte_size(config.parallel.reduce_dtype));
  (config.optimizer.offload_streamed ? work.streamed_bytes : work.state_bytes) =
      static_cast<double>(e.state_offload_bytes);
  work.updates_in_backward = config.optimizer.update_in_backward;
  work.micro_batches = static_cast<double>(micro_batches);
  work.kept_bytes = static_cast<double>(e.offload_bytes);
  work.exchange_bytes = static_cast<double>(e.exchange_bytes);
  work.exchange_ranks = e.expert;
  // Gate and up projection of the layers that compute their output again.
  double width = 0;
  for (const nn::BlockSpec& block : model.blocks) width += static_cast<double>(block.feed_forward.active_width());
  const std::int64_t again = policy.count(autograd::SavePolicy::recompute);
  work.recomputed_products = 2 * 2 * static_cast<double>(model.hidden_size) * width * static_cast<double>(again) /
                             static_cast<double>(std::max<std::int64_t>(1, model.num_hidden_layers));
  // Tiles repeat all three products, under full recompute as part of their layer.
  if (config.training.mlp_tile_tokens > 0 && micro_batch_tokens(config) > config.training.mlp_tile_tokens &&
      work.recomputed == 0)
    work.recomputed_products = 2 * 3 * static_cast<double>(model.hidden_size) * width;
  return work;
}

}  // namespace quench
