#pragma once
// From a run's config to its model: architecture, weights, precision recipe.

#include <filesystem>
#include <memory>
#include <vector>

#include "nn/causal_lm.h"
#include "recipes/convert.h"
#include "recipes/lora/adapters.h"
#include "recipes/lora/quantized_base.h"
#include "train/config/resolved_config.h"

namespace quench {

struct ModelSetup {
  nn::ModelConfig config;
  std::unique_ptr<nn::CausalLm> model;
  std::unique_ptr<recipes::Adapters> adapters;   // of the section lora; null: all of the model is trained
  std::unique_ptr<recipes::QuantizedBase> base;  // the weights below them that lora.base keeps in few bits
  std::vector<recipes::LayerConversion> conversion;
  std::shared_ptr<recipes::HealthRecorder> health;  // of the converted layers; null: metrics.health_every is 0
};

// Parameters of the adapters that a token goes through; absent: all of the model is trained.
[[nodiscard]] std::optional<std::int64_t> trained_adapters(const ModelSetup& setup);

// The architecture that the model section describes (preset, folder or inline fields).
[[nodiscard]] nn::ModelConfig resolve_model_config(const ModelSection& section);

// Types of parameters and gradients that the training section asks for. Gradients default to f32, except for bf16
// parameters that are updated from a single micro-batch of a single process (or summed in bf16 by several), where bf16
// loses nothing by accumulation.
[[nodiscard]] nn::ParameterOptions parameter_options(const RunConfig& config, Device device);

// The part of each parameter that a process holds: of experts', and of all others.
struct ModelSharding {
  nn::Sharding sharding;
  nn::Sharding experts;
};

// Builds the model on the device and applies the recipe; parameters are allocated but not filled. A plan of memory
// (device meta) is made for `target`. `sharding` says which part of each parameter is allocated.
[[nodiscard]] ModelSetup build_model(const ResolvedConfig& config, Device device, Device target,
                                     const ModelSharding& sharding = {});
[[nodiscard]] inline ModelSetup build_model(const ResolvedConfig& config, Device device) {
  return build_model(config, device, device);
}

// What the run chooses about its recipe on a device.
[[nodiscard]] recipes::RecipeOptions recipe_options(const RunConfig& config, Device target,
                                                    std::shared_ptr<recipes::HealthRecorder> health = nullptr);

// Gives the model's layers the kernels of the run's recipe on `target`; with `tail` high-precision ones; and puts the
// adapters, if any, over them.
std::vector<recipes::LayerConversion> apply_run_recipe(nn::CausalLm& model, const ResolvedConfig& config, Device target,
                                                       bool tail,
                                                       std::shared_ptr<recipes::HealthRecorder> health = nullptr,
                                                       const recipes::Adapters* adapters = nullptr);

// Whether the step `step` (0-based, of `steps`) runs without the recipe: recipe.start_step, stop_step,
// high_precision_tail.
[[nodiscard]] bool in_high_precision(const RunConfig& config, std::int64_t step, std::int64_t steps);

[[nodiscard]] autograd::Recompute recompute_level(TrainingSection::ActivationCheckpoint level);

// How the head's loss is computed on a device: logits of bf16 training are f32 on the CPU and bf16 on a GPU, where the
// difference is some per cent of a step's memory traffic, unless the config says otherwise.
[[nodiscard]] LmHeadLossOptions loss_options(const RunConfig& config, std::int64_t vocab_size, Device device);

// Where each layer's largest activation waits for the backward pass: training.offload_layers and, of the layers that
// remain, training.recompute_mlp_layers, each at most all.
[[nodiscard]] autograd::ActivationPolicy activation_policy(const RunConfig& config, const nn::ModelConfig& model);

// The terms that the routers of a model with experts add to the loss.
[[nodiscard]] RouterTerms router_terms(const RunConfig& config, const nn::ModelConfig& model);

// What the bias on the choice of an expert changes by in a step; 0: it stays.
[[nodiscard]] float router_bias_speed(const RunConfig& config, const nn::ModelConfig& model);

// Whether fill_model() takes the weights from the folder in model.path.
[[nodiscard]] bool loads_weights(const RunConfig& config);

// Fills the parameters: random, keyed by training.seed, or from the folder in model.path; adapters are random.
void fill_model(nn::CausalLm& model, const RunConfig& config);

}  // namespace quench
