#include "train/session/model_setup.h"

#include <algorithm>
#include <cmath>

#include "core/system/key_error.h"
#include "export/table/mixed_types.h"
#include "nn/modules/initialize.h"
#include "train/check/check.h"
#include "train/config/objective_table.h"
#include "train/config/presets.h"
#include "train/session/adapter_setup.h"
#include "train/session/learned_scales.h"
#include "train/session/trained_parameters.h"

namespace quench {

nn::ModelConfig resolve_model_config(const ModelSection& section) {
  const std::string source = !section.path.empty()     ? section.path + "/config.json"
                             : !section.preset.empty() ? "model.preset " + section.preset
                                                       : std::string("model");
  return nn::parse_model_config(model_config(section), source);
}

nn::ModelConfig run_model_config(const RunConfig& config) {
  nn::ModelConfig model = resolve_model_config(config.model);
  if (config.training.mtp_loss_weight > 0) model.mtp.layers = model.mtp.declared;
  return model;
}

std::optional<std::int64_t> trained_adapters(const ModelSetup& setup) {
  if (!setup.adapters) return std::nullopt;
  if (setup.all_adapters) return setup.all_adapters;
  // A copy of the head costs wgrad, a third of an adapter's FLOPs; other copies are no GEMM operands.
  const recipes::SavedModules& saved = setup.adapters->saved();
  std::int64_t count = saved.head_elements() / 3;
  for (const recipes::TokenRows::Module& tokens : setup.adapters->tokens().modules()) {
    count -= tokens.rows->numel();
    if (setup.config.tie_word_embeddings || tokens.name == nn::kHeadName)  // the gradient of the whole head
      count += setup.config.vocab_size * setup.config.hidden_size / 3;
  }
  for (const recipes::SavedModules::Module& module : saved.modules()) count -= module.copy->numel();
  for (const nn::Parameter* parameter : setup.adapters->parameters())  // active ones of experts
    count += parameter->experts > 0 ? parameter->numel() * setup.config.experts.per_token / parameter->experts
                                    : parameter->numel();
  return count;
}

nn::ParameterOptions parameter_options(const RunConfig& config, Device device) {
  const ParallelSection& parallel = config.parallel;
  const bool single = accumulation_steps(config, parallel.data_ranks()) == 1 &&
                      (parallel.ranks == parallel.tensor * parallel.pipeline || parallel.reduce_dtype == DType::bf16);
  nn::ParameterOptions options;
  options.dtype = config.training.dtype;
  options.grad_dtype = config.training.grad_dtype.value_or(single ? config.training.dtype : DType::f32);
  options.device = device;
  return options;
}

namespace {

std::vector<recipes::LinearGemm> gemms(const std::vector<std::string>& names, std::string_view key) {
  std::vector<recipes::LinearGemm> result;
  for (const std::string& name : names) result.push_back(require_enum<recipes::LinearGemm>(name, key));
  return result;
}

MxScaleMode mx_scale_mode(std::string_view name) {
  for (int mode = 0; mode < kMxScaleModeCount; ++mode)
    if (to_string(static_cast<MxScaleMode>(mode)) == name) return static_cast<MxScaleMode>(mode);
  throw KeyError(ErrorCode::bad_config, "recipe.mx_scale", fmt::format("'{}' is unknown", name));
}

// A cast per micro-batch moves 6 bytes per parameter; its three GEMMs take 6 FLOPs per parameter and token. Below this
// many tokens casts cost several per cent of the GEMMs, worth two bytes per parameter; above it memory is worth more.
constexpr std::int64_t kFewTokens = 4096;

bool keeps_weights(const RunConfig& config) {
  const ParallelSection& parallel = config.parallel;
  const bool few = config.training.micro_batch_size * config.data.seq_len / parallel.context <= kFewTokens;
  // With float8 all-gather the owning rank casts.
  const bool gathers_codes = parallel.float8_all_gather && parallel.ranks > parallel.replicate * parallel.pipeline;
  // Kept codes would outweigh a base in few bits.
  const bool packed = config.lora && config.lora->base != recipes::BaseForm::dense;
  // A search for codes and scales, not a cast. "auto" is a choice among others.
  const bool costly =
      config.recipe.name != kAutoRecipe && recipes::find_recipe(config.recipe.name).has_key("gguf_scheme");
  return config.recipe.keep_weights.value_or(
      costly || (few && !gathers_codes && !packed && accumulation_steps(config, parallel.data_ranks()) > 1));
}

std::shared_ptr<recipes::DelayedScaling> make_scaling(const RecipeSection& recipe) {
  if (recipe.scaling != RecipeSection::Scaling::delayed) return nullptr;
  return std::make_shared<recipes::DelayedScaling>(
      recipes::DelayedScalingOptions{.history = recipe.amax_history, .margin = static_cast<int>(recipe.amax_margin)});
}

}  // namespace

recipes::RecipeOptions recipe_options(const RunConfig& config, Device target,
                                      std::shared_ptr<recipes::HealthRecorder> health,
                                      std::shared_ptr<recipes::DelayedScaling> scaling) {
  const RecipeSection& recipe = config.recipe;
  const recipes::RecipeOptions formats = simulated_formats(recipe);
  return {.target = target,
          .emulate = recipe.emulate || target.is_cpu(),
          .pad = recipe.pad,
          .keep_weights = keeps_weights(config),
          .fast_accumulation = gemms(recipe.fast_accumulation, "recipe.fast_accumulation"),
          .high_precision = gemms(recipe.high_precision_gemms, "recipe.high_precision_gemms"),
          .stochastic_gradients = recipe.gradient_rounding == RecipeSection::GradientRounding::stochastic
                                      ? std::optional(static_cast<std::uint64_t>(config.training.seed))
                                      : std::nullopt,
          .weight_bits = recipe.weight_bits,
          .group_size = recipe.group_size,
          .asymmetric_weights = recipe.asymmetric_weights,
          .learned_scales = recipe.learned_scales,
          .weight_grid = formats.weight_grid,
          .rules = recipe_rules(recipe),
          .scale_dtype = formats.scale_dtype,
          .embedding_bits = recipe.embedding_bits,
          .embedding_group_size = recipe.embedding_group_size,
          .gguf_scheme = recipe.gguf_scheme,
          .mx_scale = mx_scale_mode(recipe.mx_scale),
          .health = std::move(health),
          .delayed_scaling = std::move(scaling)};
}

bool in_high_precision(const RunConfig& config, std::int64_t step, std::int64_t steps) {
  const RecipeSection& recipe = config.recipe;
  const bool tail =
      step < steps && steps - step <= std::llround(recipe.high_precision_tail * static_cast<double>(steps));
  return tail || step < recipe.start_step || (recipe.stop_step && step >= *recipe.stop_step);
}

std::vector<recipes::LayerConversion> apply_run_recipe(const ModelSetup& setup, const ResolvedConfig& config,
                                                       Device target, bool tail) {
  nn::CausalLm& model = *setup.model;
  const recipes::Adapters* adapters = setup.adapters.get();
  const recipes::Recipe& recipe = tail ? recipes::kBf16 : recipes::find_recipe(config->recipe.name);
  recipes::RecipeOptions options = recipe_options(config, target, setup.health, setup.scaling);
  if (setup.gguf_types != nullptr)
    options.gguf_types = setup.gguf_types;
  else
    choose_gguf_types(options, recipe, model);
  auto conversion = tail ? recipes::apply_recipe(model, recipe, {})
                         : recipes::apply_recipe(model, recipe, layer_filter(config->recipe.filter, recipe), options);
  if (model.is_whole()) recipes::require_layers(recipe, conversion);
  if (adapters == nullptr) return conversion;
  const bool of_experts =
      std::ranges::any_of(adapters->parameters(), [](const nn::Parameter* p) { return p->experts > 0; });
  const bool merges = adapters->options().quantize_merged && recipe.capabilities.scheme != nullptr;
  for (const recipes::LayerConversion& row : conversion)
    QUENCH_CHECK_KEY(ErrorCode::bad_config, "lora.targets",
                     !of_experts || !merges || row.experts == 0 || !row.skipped_because.empty(),
                     "recipe {} cannot quantize the merged weights of experts in {}; set lora.quantize_merged to "
                     "false, or leave the experts out of lora.targets",
                     recipe.name, row.name);
  adapters->attach();
  adapters->name_kernels(conversion);
  return conversion;
}

ModelSetup build_model(const ResolvedConfig& config, Device device, Device target, const ModelSharding& sharding,
                       const std::optional<nn::ModelConfig>& model) {
  ModelSetup setup;
  // Patterns of the config, and reports, are those of the whole model.
  std::vector<recipes::LayerConversion> all;
  if (!sharding.chunks.empty() && !device.is_meta()) {
    ModelSetup whole = build_model(config, Device{DeviceType::meta}, target, {.tensor = sharding.tensor}, model);
    setup.all_adapters = trained_adapters(whole);
    all = std::move(whole.conversion);
    recipes::RecipeOptions types = recipe_options(config, target, nullptr, nullptr);
    choose_gguf_types(types, recipes::find_recipe(config->recipe.name), *whole.model);
    setup.gguf_types = types.gguf_types;
  }
  setup.config = model ? *model : run_model_config(*config);
  nn::ParameterOptions options = parameter_options(config, device);
  options.sharding = sharding.sharding;
  options.expert_sharding = sharding.experts;
  options.tensor = sharding.tensor;
  // Weights are quantized one by one as they are filled.
  options.deferred = config->lora && config->lora->base != recipes::BaseForm::dense && !config->recipe.learned_scales;
  setup.model = std::make_unique<nn::CausalLm>(setup.config, options, sharding.chunks);
  setup.model->set_mlp_tile_tokens(config->training.mlp_tile_tokens);
  if (config->metrics.health_every > 0 && !device.is_meta()) setup.health = std::make_shared<recipes::HealthRecorder>();
  nn::ParameterOptions of_adapters = parameter_options(config, device);
  of_adapters.tensor = sharding.tensor;
  setup.adapters = make_adapters(*setup.model, config, of_adapters);
  if (const ObjectiveEntry& objective = objective_of(*config); objective.extend != nullptr) {
    nn::ParameterOptions own = parameter_options(*config, device);
    own.sharding = sharding.sharding;
    objective.extend(*setup.model, *config, own);
  }
  setup.base = std::make_unique<recipes::QuantizedBase>();
  // Estimates load no weights.
  if (device.is_meta() && config->lora) plan_base(setup, *config);
  setup.scaling = make_scaling(config->recipe);
  setup.conversion = apply_run_recipe(setup, config, target, false);
  if (!all.empty()) setup.conversion = std::move(all);
  if (setup.scaling) setup.scaling->allocate(device);
  freeze_parameters(*setup.model, config->training);
  (void)ParameterGroups(*setup.model, config->optimizer);  // throws where a pattern is wrong
  return setup;
}

autograd::Recompute recompute_level(TrainingSection::ActivationCheckpoint level) {
  switch (level) {
    case TrainingSection::ActivationCheckpoint::none: return autograd::Recompute::none;
    case TrainingSection::ActivationCheckpoint::selective: return autograd::Recompute::selective;
    case TrainingSection::ActivationCheckpoint::full: return autograd::Recompute::full;
  }
  return autograd::Recompute::none;
}

LmHeadLossOptions loss_options(const RunConfig& config, std::int64_t vocab_size, Device device) {
  const bool on_gpu = device.type == DeviceType::cuda;
  const DType logits = config.training.logits_dtype.value_or(on_gpu ? config.training.dtype : DType::f32);
  const std::int64_t rows = config.training.loss_chunk_size;
  return {.chunk_rows = rows > 0 ? rows : default_loss_chunk_rows(vocab_size, device.type),
          .f32_logits = logits == DType::f32,
          .planned_for = device.is_cpu() ? DeviceType::cpu : DeviceType::cuda};
}

autograd::ActivationPolicy activation_policy(const RunConfig& config, const nn::ModelConfig& model) {
  const TrainingSection& training = config.training;
  const std::int64_t layers = model.num_hidden_layers;
  const std::int64_t offloaded = std::min(training.offload_layers, layers);
  const std::int64_t recomputed = std::min(training.recompute_mlp_layers, layers);
  return {layers, offloaded, recomputed, std::min(training.keep_attention_layers, layers)};
}

RouterTerms router_terms(const RunConfig& config, const nn::ModelConfig& model) {
  const auto asked = static_cast<double>(model.router_balance_loss);
  return {.balance = static_cast<float>(config.training.router_balance_loss.value_or(asked)),
          .z = static_cast<float>(config.training.router_z_loss)};
}

float router_bias_speed(const RunConfig& config, const nn::ModelConfig& model) {
  constexpr double kSpeed = 0.001;  // DeepSeek-V3
  if (!model.experts.expert_bias) return 0;
  return static_cast<float>(config.training.router_bias_speed.value_or(config.lora ? 0 : kSpeed));
}

bool loads_weights(const RunConfig& config) {
  return config.model.init == ModelSection::Init::load ||
         (config.model.init == ModelSection::Init::automatic && !config.model.path.empty());
}

std::optional<NewRows> new_rows(const RunConfig& config) {
  if (config.model.add_tokens.empty()) return std::nullopt;
  return NewRows{.normal = config.model.new_token_init == NewTokenInit::normal,
                 .seed = static_cast<std::uint64_t>(config.training.seed)};
}

void fill_model(nn::CausalLm& model, const RunConfig& config, const nn::ParameterFilled& filled) {
  if (loads_weights(config)) {
    load_weights(model, config.model.path, false, filled, new_rows(config),
                 static_cast<std::uint64_t>(config.training.seed));
    for (nn::Parameter* parameter : model.parameters())
      if (parameter->adapter) nn::initialize_parameter(*parameter, static_cast<std::uint64_t>(config.training.seed));
  } else {
    model.initialize(static_cast<std::uint64_t>(config.training.seed), filled);
  }
  begin_learned_scales(model);
}

}  // namespace quench
