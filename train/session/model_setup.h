#pragma once
// Model of a run's config: architecture, weights, recipe.

#include <filesystem>
#include <memory>
#include <vector>

#include "nn/decoder/causal_lm.h"
#include "recipes/convert.h"
#include "recipes/lora/adapters.h"
#include "recipes/lora/quantized_base.h"
#include "train/config/resolved_config.h"
#include "train/model_folder/model_folder.h"

namespace quench {

struct ModelSetup {
  nn::ModelConfig config;
  std::unique_ptr<nn::CausalLm> model;
  std::unique_ptr<recipes::Adapters> adapters;   // null: full training
  std::unique_ptr<recipes::QuantizedBase> base;  // quantized by lora.base
  std::vector<recipes::LayerConversion> conversion;
  std::shared_ptr<recipes::HealthRecorder> health;   // null: metrics.health_every is 0
  std::shared_ptr<recipes::DelayedScaling> scaling;  // null: recipe.scaling is dynamic
  std::optional<std::int64_t> all_adapters;          // trained_adapters() of all pipeline stages
  // Types of recipe qat_gguf for a pipeline stage, which follow from the whole model; null: from `model`.
  std::shared_ptr<const recipes::GgufTypes> gguf_types;
};

// Active per token; nullopt: full training.
[[nodiscard]] std::optional<std::int64_t> trained_adapters(const ModelSetup& setup);

// Preset, folder or inline fields.
[[nodiscard]] nn::ModelConfig resolve_model_config(const ModelSection& section);

// Parameter and gradient dtypes. Gradients default to f32; bf16 for bf16 parameters without accumulation in one process
// or on slices of one copy (or with bf16 reduction over several), where bf16 loses nothing.
[[nodiscard]] nn::ParameterOptions parameter_options(const RunConfig& config, Device device);

// resolve_model_config() with the MTP layers that the run trains.
[[nodiscard]] nn::ModelConfig run_model_config(const RunConfig& config);

// Part of the model on this rank.
struct ModelSharding {
  nn::Sharding sharding;
  nn::Sharding experts;
  nn::TensorPlace tensor;
  std::vector<nn::LayerRange> chunks{};  // layers of a pipeline stage; empty: all
};

// Model with the recipe applied; parameters are allocated, not filled. Memory estimates (device meta) are for `target`.
// `sharding`: allocated part. `model`: in place of run_model_config().
[[nodiscard]] ModelSetup build_model(const ResolvedConfig& config, Device device, Device target,
                                     const ModelSharding& sharding = {},
                                     const std::optional<nn::ModelConfig>& model = std::nullopt);
[[nodiscard]] inline ModelSetup build_model(const ResolvedConfig& config, Device device) {
  return build_model(config, device, device);
}

// Options of section recipe, for a model on `target`.
[[nodiscard]] recipes::RecipeOptions recipe_options(const RunConfig& config, Device target,
                                                    std::shared_ptr<recipes::HealthRecorder> health = nullptr,
                                                    std::shared_ptr<recipes::DelayedScaling> scaling = nullptr);

// Installs the recipe's kernels in setup.model for `target` (`tail`: high-precision ones), with the setup's health
// recorder and scaling, and adapters over them.
std::vector<recipes::LayerConversion> apply_run_recipe(const ModelSetup& setup, const ResolvedConfig& config,
                                                       Device target, bool tail);

// `step` (0-based, of `steps`) runs without the recipe: recipe.start_step, stop_step, high_precision_tail.
[[nodiscard]] bool in_high_precision(const RunConfig& config, std::int64_t step, std::int64_t steps);

// Level of key training.activation_checkpoint.
[[nodiscard]] autograd::Recompute recompute_level(TrainingSection::ActivationCheckpoint level);

// Default logits of bf16 training: f32 on the CPU, bf16 on a GPU, saving a few per cent of a step's memory traffic.
[[nodiscard]] LmHeadLossOptions loss_options(const RunConfig& config, std::int64_t vocab_size, Device device);

// Layers' largest activation: training.offload_layers, then training.recompute_mlp_layers of the remaining layers, each
// clamped.
[[nodiscard]] autograd::ActivationPolicy activation_policy(const RunConfig& config, const nn::ModelConfig& model);

// Weights of the balance and z losses of MoE routers; zeros for dense models.
[[nodiscard]] RouterTerms router_terms(const RunConfig& config, const nn::ModelConfig& model);

// 0: constant.
[[nodiscard]] float router_bias_speed(const RunConfig& config, const nn::ModelConfig& model);

// fill_model() loads the weights from model.path.
[[nodiscard]] bool loads_weights(const RunConfig& config);
// Rows for the tokens of model.add_tokens; none without.
[[nodiscard]] std::optional<NewRows> new_rows(const RunConfig& config);

// Random, keyed by training.seed, or from model.path; adapters are random.
void fill_model(nn::CausalLm& model, const RunConfig& config, const nn::ParameterFilled& filled = {});

}  // namespace quench
