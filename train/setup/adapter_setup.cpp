#include "train/setup/adapter_setup.h"

#include <filesystem>

#include "recipes/lora/stored_base.h"
#include "train/check/load.h"
#include "train/checkpoint/hash.h"
#include "train/metrics/step_metrics.h"
#include "train/model_folder/model_folder.h"
#include "train/setup/model_setup.h"
#include "train/step/training_state.h"

namespace quench {
namespace {

constexpr std::string_view kBaseKey = "base";  // of CheckpointState::extra: {"hash"}

}  // namespace

recipes::LoraOptions lora_options(const RunConfig& config) {
  const LoraSection& lora = config.lora.value();
  return {.rank = lora.rank,
          .alpha = lora.alpha,
          .dropout = lora.dropout,
          .targets = lora.targets,
          .rank_pattern = lora.rank_pattern,
          .alpha_pattern = lora.alpha_pattern,
          .rslora = lora.rslora,
          .quantize_merged = lora.quantize_merged,
          .seed = static_cast<std::uint64_t>(config.training.seed)};
}

std::unique_ptr<recipes::Adapters> make_adapters(nn::CausalLm& model, const RunConfig& config,
                                                 const nn::ParameterOptions& parameters) {
  if (!config.lora) return nullptr;
  const recipes::LoraOptions options = lora_options(config);
  auto adapters = std::make_unique<recipes::Adapters>(model, recipes::lora_layers(model, options), options, parameters);
  recipes::freeze_base(model);
  return adapters;
}

std::string base_hash(nn::CausalLm& model, const std::function<Tensor(const nn::Parameter&)>& whole) {
  StreamHash hash;
  const MemoryScope scope(MemoryCategory::workspace);
  for (const nn::Parameter* parameter : model.parameters()) {
    if (parameter->adapter) continue;
    const Tensor host = (whole ? whole(*parameter) : parameter->variable.value()).to(Device{});
    hash.update(parameter->name);
    hash.update(std::span(static_cast<const std::byte*>(host.raw_data()), host.nbytes()));
  }
  return format_hash(hash.digest());
}

void store_base(CheckpointState& state, const std::string& hash) {
  state.extra.set(kBaseKey, Json(Json::Object{{"hash", hash}}));
}

bool holds_adapters_alone(const CheckpointState& state) {
  return state.extra.find(kBaseKey) != nullptr;
}

void require_base(const CheckpointState& state, const std::string& hash, const std::string& source) {
  const Json* base = state.extra.find(kBaseKey);
  const Json* stored = base != nullptr && base->is_object() ? base->find("hash") : nullptr;
  QUENCH_CHECK_AS(ErrorCode::corrupt, stored != nullptr && stored->is_string(),
                  "{} says nothing of the model that its adapters belong to", source);
  QUENCH_CHECK_AS(ErrorCode::bad_config, stored->as_string() == hash,
                  "the adapters in {} were trained over another base: the weights here have hash {}, those had {}; "
                  "give the model that the run started from",
                  source, hash, stored->as_string());
}

std::unique_ptr<recipes::Adapters> restore_adapted(CheckpointReader& reader, nn::CausalLm& model,
                                                   const std::string& source) {
  const RunConfig config = run_config_from_json(reader.state().config, source, {}, {.data = false, .files = false});
  QUENCH_CHECK_AS(ErrorCode::corrupt, config.lora.has_value(), "{} holds adapters, but its config has no section lora",
                  source);
  QUENCH_CHECK_AS(ErrorCode::not_found, !loads_weights(config) || std::filesystem::exists(config.model.path),
                  "{} holds adapters over the model in {}, which is not found from here; start from the folder where "
                  "the run was started, or bring that folder back",
                  source, config.model.path);
  auto adapters = make_adapters(model, config, model.options());
  adapters->attach();
  fill_model(model, config);
  require_base(reader.state(), base_hash(model), source);
  recipes::store_base(model, config.lora->base);
  recipes::make_dense(model);  // the rounded weights, in the form that everything else takes
  restore_parameters(reader, model);
  return adapters;
}

std::string describe_adapters(const recipes::Adapters& adapters, std::int64_t model_parameters) {
  const std::int64_t count = adapters.parameter_count();
  return fmt::format("lora: {} layers, {} parameters are trained over {} frozen ones ({:.2f}%)",
                     adapters.layers().size(), format_count(count), format_count(model_parameters),
                     100.0 * static_cast<double>(count) / static_cast<double>(model_parameters));
}

}  // namespace quench
