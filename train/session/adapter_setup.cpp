#include "train/session/adapter_setup.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "core/json/json_member.h"
#include "core/ops/elementwise.h"
#include "core/ops/weights/host_transfer.h"
#include "distributed/fsdp/gather_parameter.h"
#include "distributed/pipeline/whole_stages.h"
#include "export/formats/model_tensors.h"
#include "nn/modules/initialize.h"
#include "train/check/load.h"
#include "train/checkpoint/hash.h"
#include "train/metrics/step_metrics.h"
#include "train/model_folder/model_folder.h"
#include "train/model_source/run_layout.h"
#include "train/step/training_state.h"

namespace quench {
namespace {

constexpr std::string_view kBaseKey = "base";  // key in CheckpointState::extra: {"hash"}

using Whole = std::function<Tensor(const nn::Parameter&)>;
using CodesHashes = std::map<const nn::Parameter*, std::string>;

void update(StreamHash& hash, const Tensor& tensor) {
  if (!tensor.defined()) return;
  read_by_parts(tensor, [&](std::span<const std::byte> bytes) { hash.update(bytes); });
}

std::string hash_of(const PackedMatrix& codes) {
  StreamHash hash;
  hash.update(codes.describe());
  for (const Tensor& part : {codes.codes(), codes.scales(), codes.offsets()}) update(hash, part);
  return format_hash(hash.digest());
}

// Rows that the base's folder stores.
Tensor without_new_rows(const nn::Parameter& parameter, const Tensor& values, std::int64_t vocabulary) {
  const bool by_token = parameter.name == "model.embed_tokens.weight" || parameter.name == "lm_head.weight";
  return by_token && vocabulary > 0 && vocabulary < values.size(0) ? values.narrow(0, 0, vocabulary) : values;
}

// `vocabulary`: rows of the embedding and the head that count; 0: all.
std::string base_hash(nn::CausalLm& model, const CodesHashes& codes, const Whole& whole, std::int64_t vocabulary) {
  StreamHash hash;
  const MemoryScope scope(MemoryCategory::workspace);
  for (const nn::Parameter* parameter : model.parameters()) {
    // Adapters are trained without MTP layers.
    if (parameter->adapter || !mtp_part(parameter->name, model.config()).empty()) continue;
    hash.update(parameter->name);
    if (const auto found = codes.find(parameter); found != codes.end())
      hash.update(found->second);
    else
      update(hash, without_new_rows(*parameter, whole ? whole(*parameter) : parameter->variable.value(), vocabulary));
  }
  return format_hash(hash.digest());
}

// Rows of the base's folder, which has none of new tokens; 0: those of the model.
std::int64_t stored_vocabulary(const RunConfig& config) {
  if (config.model.add_tokens.empty() || !loads_weights(config)) return 0;
  return read_model_config(config.model.path).vocab_size;
}

// Weights are quantized one by one, so that no more than one is in the model's dtype. Returns the hash of the values
// before, as base_hash().
std::string fill_and_quantize(ModelSetup& setup, const RunConfig& config) {
  const std::int64_t vocabulary = stored_vocabulary(config);
  const std::vector<nn::Parameter*> weights = recipes::quantizable_weights(*setup.model);
  const std::set<const nn::Parameter*> quantized(weights.begin(), weights.end());
  StreamHash hash;
  fill_model(*setup.model, config, [&](nn::Parameter& parameter) {
    // The parameters of base_hash(): no adapters, no MTP layers.
    if (parameter.adapter || !mtp_part(parameter.name, setup.model->config()).empty()) return;
    const MemoryScope scope(MemoryCategory::workspace);
    hash.update(parameter.name);
    update(hash, without_new_rows(parameter, parameter.variable.value(), vocabulary));
    if (quantized.contains(&parameter)) setup.base->store(parameter, config.lora->base);
  });
  return format_hash(hash.digest());
}

// Config of an adapter-only checkpoint, with the path of the base as restore_adapted() finds it.
RunConfig adapted_config(const CheckpointState& state, const std::string& source, const std::filesystem::path& run) {
  RunConfig config = run_config_from_json(state.config, source, {}, {.data = false, .files = false});
  QUENCH_CHECK_AS(ErrorCode::corrupt, config.lora.has_value(), "{} holds adapters, but its config has no section lora",
                  source);
  if (loads_weights(config) && !std::filesystem::exists(config.model.path) && !run.empty()) {
    const std::filesystem::path started = working_directory_of(run);
    if (!started.empty() && std::filesystem::exists(started / config.model.path))
      config.model.path = (started / config.model.path).string();
  }
  return config;
}

bool keeps_codes(const RunConfig& config) {
  return config.lora->base == recipes::BaseForm::stored && loads_weights(config);
}

}  // namespace

recipes::LoraOptions lora_options(const RunConfig& config) {
  const LoraSection& lora = config.lora.value();
  // All projections, also under other names (Mixtral, DeepSeek-V3).
  const bool all = lora.targets == LoraSection().targets || lora.targets == std::vector<std::string>{"all-linear"};
  return {.rank = lora.rank,
          .alpha = lora.alpha,
          .dropout = lora.dropout,
          .targets = all ? std::vector<std::string>{"*"} : lora.targets,
          .rank_pattern = lora.rank_pattern,
          .alpha_pattern = lora.alpha_pattern,
          .rslora = lora.rslora,
          .dora = lora.dora,
          .quantize_merged = lora.quantize_merged,
          .seed = static_cast<std::uint64_t>(config.training.seed),
          .modules_to_save = lora.modules_to_save,
          .token_indices = {lora.trainable_token_indices.embedding.ids, lora.trainable_token_indices.head.ids}};
}

std::unique_ptr<recipes::Adapters> make_adapters(nn::CausalLm& model, const RunConfig& config,
                                                 const nn::ParameterOptions& parameters) {
  if (!config.lora) return nullptr;
  const recipes::LoraOptions options = lora_options(config);
  auto adapters = std::make_unique<recipes::Adapters>(model, recipes::lora_layers(model, options), options, parameters);
  recipes::freeze_base(model);
  return adapters;
}

std::string fill_adapted(ModelSetup& setup, const RunConfig& config, const distributed::Ranks& ranks) {
  nn::CausalLm& model = *setup.model;
  const auto seed = static_cast<std::uint64_t>(config.training.seed);
  if (ranks.is_single() && !keeps_codes(config) && !config.recipe.learned_scales) {
    const std::string hash = fill_and_quantize(setup, config);
    setup.adapters->begin_from_base({});
    return hash;
  }
  CodesHashes codes;
  if (keeps_codes(config)) {
    load_base(
        model, config.model.path,
        [&](nn::Parameter& weight, const PackedMatrix& packed) {
          codes[&weight] = hash_of(packed);
          setup.base->keep(weight, packed, model.options().dtype);
        },
        new_rows(config));
    for (nn::Parameter* parameter : setup.adapters->parameters()) nn::initialize_parameter(*parameter, seed);
  } else {
    fill_model(model, config);
  }
  std::string hash;
  distributed::with_whole_model(model, ranks, [&](nn::CausalLm& all, const Whole& whole) {
    hash = base_hash(all, codes, whole, stored_vocabulary(config));
  });
  hash = distributed::exchange_texts(*ranks.host, hash, "base").front();
  const Whole gather = [&](const nn::Parameter& parameter) { return distributed::gather_parameter(parameter, ranks); };
  setup.base->store(model, config.lora->base, gather);
  Whole values;
  if (!ranks.is_single())
    values = [&](const nn::Parameter& weight) {
      return setup.base->holds(weight) ? setup.base->values(weight, gather) : gather(weight);
    };
  setup.adapters->begin_from_base(values);
  return hash;
}

void plan_base(ModelSetup& setup, const RunConfig& config) {
  if (keeps_codes(config))
    load_base(
        *setup.model, config.model.path,
        [&](nn::Parameter& weight, const PackedMatrix& packed) {
          setup.base->keep(weight, packed.to(setup.model->options().device), setup.model->options().dtype);
        },
        new_rows(config));
  const std::vector<nn::Parameter*> weights = recipes::quantizable_weights(*setup.model);
  const std::set<const nn::Parameter*> quantized(weights.begin(), weights.end());
  for (nn::Parameter* parameter : setup.model->parameters()) {
    if (parameter->adapter || setup.base->holds(*parameter)) continue;
    materialize(*parameter);
    if (quantized.contains(parameter)) setup.base->store(*parameter, config.lora->base);
  }
}

std::string base_hash_as(nn::CausalLm& model, DType dtype, std::int64_t vocabulary) {
  const Whole stored = [&](const nn::Parameter& parameter) {
    const Tensor values = parameter.variable.value().to(Device{});
    if (values.dtype() == dtype) return values;
    const Tensor converted = Tensor::empty(values.shape(), dtype);
    cast({values, converted});
    return converted;
  };
  return base_hash(model, {}, stored, vocabulary);
}

std::string stored_base_hash(const CheckpointState& state) {
  return find_text(state.extra, {kBaseKey, "hash"});
}

void store_base(CheckpointState& state, const std::string& hash) {
  state.extra.set(kBaseKey, Json(Json::Object{{"hash", hash}}));
}

bool holds_adapters_alone(const CheckpointState& state) {
  return state.extra.find(kBaseKey) != nullptr;
}

void require_base(const CheckpointState& state, const std::string& hash, const std::string& source) {
  const std::string stored = stored_base_hash(state);
  QUENCH_CHECK_AS(ErrorCode::corrupt, !stored.empty(), "{} does not name the base model of its adapters", source);
  QUENCH_CHECK_AS(ErrorCode::bad_config, stored == hash,
                  "the adapters in {} were trained over another base: the weights here have hash {}, expected {}; use "
                  "the run's base model",
                  source, hash, stored);
}

std::string base_path(const CheckpointState& state, const std::string& source, const std::filesystem::path& run) {
  return adapted_config(state, source, run).model.path;
}

std::unique_ptr<recipes::Adapters> restore_adapted(CheckpointReader& reader, std::unique_ptr<nn::CausalLm>& model,
                                                   const std::string& source, const std::filesystem::path& run) {
  const RunConfig config = adapted_config(reader.state(), source, run);
  QUENCH_CHECK_AS(ErrorCode::not_found, !loads_weights(config) || std::filesystem::exists(config.model.path),
                  "{} holds adapters over the model in {}, which does not exist here; start from the folder where the "
                  "run was started, or restore that folder",
                  source, config.model.path);
  ModelSetup setup;
  setup.model = std::move(model);
  setup.base = std::make_unique<recipes::QuantizedBase>();
  setup.adapters = make_adapters(*setup.model, config, setup.model->options());
  setup.adapters->attach();
  const std::string hash = fill_adapted(setup, config);
  model = std::move(setup.model);
  require_base(reader.state(), hash, source);
  recipes::make_dense(*model);  // rounded weights
  restore_parameters(reader, *model);
  return std::move(setup.adapters);
}

std::string describe_adapters(const recipes::Adapters& adapters, std::int64_t model_parameters) {
  const std::int64_t count = adapters.parameter_count();
  std::vector<std::string> saved;
  for (const recipes::SavedModules::Module& module : adapters.saved().modules())
    if (std::string name = recipes::without_index(module.name); std::ranges::find(saved, name) == saved.end())
      saved.push_back(std::move(name));
  std::string copies = saved.empty() ? "" : fmt::format(" and copies of {}", fmt::join(saved, ", "));
  for (const recipes::TokenRows::Module& module : adapters.tokens().modules())
    copies +=
        fmt::format(" and {} rows of the {}", module.ids.size(), module.name == nn::kHeadName ? "head" : "embedding");
  return fmt::format("lora: {} layers{}, {} parameters are trained over {} frozen ones ({:.2f}%)",
                     adapters.layers().size(), copies, format_count(count), format_count(model_parameters),
                     100.0 * static_cast<double>(count) / static_cast<double>(model_parameters));
}

}  // namespace quench
