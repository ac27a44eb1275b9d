#include "train/model_setup.h"

#include "train/config/check.h"
#include "train/config/presets.h"
#include "train/hf/model_folder.h"

namespace quench {

nn::ModelConfig resolve_model_config(const ModelSection& section) {
  const std::string source = !section.path.empty()     ? section.path + "/config.json"
                             : !section.preset.empty() ? "model.preset " + section.preset
                                                       : std::string("model");
  return nn::parse_model_config(model_config(section), source);
}

nn::ParameterOptions parameter_options(const RunConfig& config, Device device) {
  const bool single = accumulation_steps(config, 1) == 1;
  nn::ParameterOptions options;
  options.dtype = config.training.dtype;
  options.grad_dtype = config.training.grad_dtype.value_or(single ? config.training.dtype : DType::f32);
  options.device = device;
  return options;
}

ModelSetup build_model(const RunConfig& config, Device device) {
  ModelSetup setup;
  setup.config = resolve_model_config(config.model);
  setup.model = std::make_unique<nn::CausalLm>(setup.config, parameter_options(config, device));
  setup.conversion = recipes::apply_recipe(*setup.model, recipes::find_recipe(config.recipe.name),
                                           {config.recipe.filter.include, config.recipe.filter.exclude});
  return setup;
}

LmHeadLossOptions loss_options(const RunConfig& config, std::int64_t vocab_size, Device device) {
  const bool on_gpu = device.type == DeviceType::cuda;
  const DType logits = config.training.logits_dtype.value_or(on_gpu ? config.training.dtype : DType::f32);
  const std::int64_t rows = config.training.loss_chunk_size;
  return {.chunk_rows = rows > 0 ? rows : default_loss_chunk_rows(vocab_size, device.type),
          .f32_logits = logits == DType::f32};
}

std::int64_t offload_layers(const RunConfig& config, const nn::ModelConfig& model, Device device) {
  const std::int64_t layers = std::min(config.training.offload_layers, model.num_hidden_layers);
  if (layers == 0) return 0;
  QUENCH_CHECK_AS(ErrorCode::bad_config, !device.is_cpu(),
                  "training.offload_layers is {}, but a CPU run's activations are in host memory; set it to 0", layers);
  QUENCH_CHECK_AS(
      ErrorCode::bad_config, config.training.activation_checkpoint != TrainingSection::ActivationCheckpoint::full,
      "training.offload_layers is {}, but training.activation_checkpoint \"full\" keeps nothing to send; set "
      "one of them to its default",
      layers);
  return layers;
}

void fill_model(nn::CausalLm& model, const RunConfig& config) {
  const bool load = config.model.init == ModelSection::Init::load ||
                    (config.model.init == ModelSection::Init::automatic && !config.model.path.empty());
  if (load) {
    load_weights(model, config.model.path);
  } else {
    model.initialize(static_cast<std::uint64_t>(config.training.seed));
  }
}

}  // namespace quench
