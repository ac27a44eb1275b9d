#include "train/model_folder/peft_folder.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "core/ops/elementwise.h"
#include "core/safetensors/safetensors.h"
#include "core/system/file.h"
#include "core/system/output_folder.h"
#include "core/system/temporary.h"
#include "export/formats/model_tensors.h"
#include "export/schemes/finite_values.h"
#include "train/model_folder/model_folder.h"
#include "train/model_folder/peft_config.h"
#include "train/model_folder/peft_names.h"
#include "train/model_folder/vocabulary_updates.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using namespace peft_names;

using Parts = std::map<recipes::AdapterPart, const SafetensorsEntry*>;

// "base_model.model.<layer>.lora_A.weight"; nullopt for others.
std::optional<std::pair<std::string, recipes::AdapterPart>> parse_name(std::string_view name) {
  for (const auto& [part, suffix] : kPartNames)
    if (name.starts_with(kPrefix) && name.ends_with(suffix) && name.size() > kPrefix.size() + suffix.size()) {
      name.remove_prefix(kPrefix.size());
      name.remove_suffix(suffix.size() + 1);
      return std::pair(std::string(name), part);
    }
  return std::nullopt;
}

Shape shape_of(recipes::AdapterPart part, const recipes::LinearShape& layer, std::int64_t rank) {
  switch (part) {
    case recipes::AdapterPart::a: return {rank, layer.in_features};
    case recipes::AdapterPart::b: return {layer.out_features, rank};
    case recipes::AdapterPart::magnitude: return {layer.out_features};
    case recipes::AdapterPart::module:
    case recipes::AdapterPart::tokens: break;
  }
  return {};
}

// Empty: none.
std::string layer_fault(const std::string& layer, const Parts& parts, const recipes::LinearShape* shape,
                        const PeftConfig& config) {
  if (shape == nullptr) return fmt::format("{} is not a linear layer of the model", layer);
  for (const auto& [part, suffix] : kPartNames) {
    const bool wanted = part != recipes::AdapterPart::magnitude || config.dora;
    if (parts.contains(part) == wanted) continue;
    return wanted ? fmt::format("{} has no {}", layer, suffix)
                  : fmt::format("{} has {}, but use_dora is not set in {}", layer, suffix, kAdapterConfigName);
  }
  const std::int64_t rank = config.rank_of(layer);
  for (const auto& [part, entry] : parts) {
    const Shape expected = shape_of(part, *shape, rank);
    if (!(entry->shape == expected))
      return fmt::format("{0} has shape {1}; expected {3} for rank {2}", entry->name, entry->shape.to_string(), rank,
                         expected.to_string());
    if (entry->dtype != DType::f32 && entry->dtype != DType::bf16 && entry->dtype != DType::f16)
      return fmt::format("{} has dtype {}; F32, BF16 and F16 can be loaded", entry->name, entry->dtype_name);
  }
  return {};
}

// Stored weights of an adapter folder.
struct StoredAdapter {
  std::map<std::string, Parts> layers;
  std::map<std::string, const SafetensorsEntry*> modules;  // by name
  const SafetensorsEntry* tied_head = nullptr;             // repeats the copy of the embedding
  std::map<std::string, const SafetensorsEntry*> tokens;   // rows, by module
  std::map<std::string, const SafetensorsEntry*> tables;   // whole tables of a resized vocabulary, by module
  const SafetensorsEntry* tied_table = nullptr;            // repeats the embedding
  VocabularyUpdates updates;
};

bool is_read(const SafetensorsEntry& entry) {
  return entry.dtype == DType::f32 || entry.dtype == DType::bf16 || entry.dtype == DType::f16;
}

// "lm_head" of base_model.model.lm_head.weight; empty: another name.
std::string_view module_of(std::string_view name, std::string_view ending) {
  if (!name.starts_with(kPrefix) || !name.ends_with(ending) || name.size() < kPrefix.size() + ending.size()) return {};
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(ending.size());
  return name;
}

bool is_vocabulary(std::string_view module) {
  return module == kTable || module == nn::kHeadName;
}

std::string dtype_fault(const SafetensorsEntry& entry) {
  return fmt::format("{} has dtype {}; F32, BF16 and F16 can be loaded", entry.name, entry.dtype_name);
}

// Whole embedding or head of a resized vocabulary.
void add_table(nn::CausalLm& model, const SafetensorsEntry& entry, std::string_view module, StoredAdapter& stored,
               std::vector<std::string>& faults) {
  const Shape expected{model.config().vocab_size, model.config().hidden_size};
  if (!(entry.shape == expected))
    faults.push_back(fmt::format("{} has shape {}; expected {}: the adapter was trained with another vocabulary",
                                 entry.name, entry.shape.to_string(), expected.to_string()));
  else if (!is_read(entry))
    faults.push_back(dtype_fault(entry));
  if (module == nn::kHeadName && model.config().tie_word_embeddings)
    stored.tied_table = &entry;
  else
    stored.tables[std::string(module)] = &entry;
}

// PEFT stores a module of modules_to_save up to three times with a resized vocabulary.
bool repeats_module(const SafetensorsEntry& entry) {
  return is_vocabulary(module_of(entry.name, ".modules_to_save.weight")) ||
         is_vocabulary(module_of(entry.name, ".original_module.weight"));
}

// Weights of the modules of modules_to_save, and of a tied head; false: another tensor.
bool take_module(nn::CausalLm& model, const SafetensorsEntry& entry, const PeftConfig& config, StoredAdapter& stored,
                 std::vector<std::string>& faults) {
  for (const std::string_view ending : {kPatchedTable, kAdaptedTable})
    if (const std::string_view table = module_of(entry.name, ending); is_vocabulary(table)) {
      add_table(model, entry, table, stored, faults);
      return true;
    }
  const std::string_view name = module_of(entry.name, kWeight);
  const bool is_tied_head = name == nn::kHeadName && model.config().tie_word_embeddings;
  const std::string_view original = is_tied_head ? "model.embed_tokens" : name;
  const std::vector<std::string> savable = recipes::savable_modules(model);
  if (std::ranges::find(savable, original) == savable.end()) return false;
  const bool tied_table = original == "model.embed_tokens" && model.config().tie_word_embeddings;
  const bool named = std::ranges::any_of(config.modules_to_save, [&](const std::string& pattern) {
    return recipes::saved_pattern_matches(pattern, original) ||
           (tied_table && recipes::saved_pattern_matches(pattern, nn::kHeadName));
  });
  if (!named && is_vocabulary(name)) {
    add_table(model, entry, name, stored, faults);
    return true;
  }
  const Shape shape = recipes::savable_shape(model, original);
  if (!named)
    faults.push_back(fmt::format("{} is the weight of a module that modules_to_save in {} does not name", entry.name,
                                 kAdapterConfigName));
  else if (!(entry.shape == shape))
    faults.push_back(fmt::format("{} has shape {}; expected {}{}", entry.name, entry.shape.to_string(),
                                 shape.to_string(),
                                 shape.rank() == 2 ? ": the adapter was trained with another vocabulary" : ""));
  else if (!is_read(entry))
    faults.push_back(dtype_fault(entry));
  if (is_tied_head)
    stored.tied_head = &entry;
  else
    stored.modules[std::string(name)] = &entry;
  return true;
}

// Rows of the embedding or of the head; false: another tensor.
bool take_tokens(nn::CausalLm& model, const SafetensorsEntry& entry, const PeftConfig& config, StoredAdapter& stored,
                 std::vector<std::string>& faults) {
  const std::string_view module = module_of(entry.name, fmt::format(".{}", kTokenRows));
  if (!is_vocabulary(module)) return false;
  if (module == nn::kHeadName && model.config().tie_word_embeddings) return true;  // rows of the embedding
  const std::vector<std::int64_t>& ids = module == kTable ? config.token_indices.embedding : config.token_indices.head;
  const Shape expected{static_cast<std::int64_t>(ids.size()), model.config().hidden_size};
  if (!(entry.shape == expected))
    faults.push_back(fmt::format("{} has shape {}; expected {} for the {} ids of trainable_token_indices", entry.name,
                                 entry.shape.to_string(), expected.to_string(), ids.size()));
  else if (!is_read(entry))
    faults.push_back(dtype_fault(entry));
  for (const std::int64_t id : ids)
    if (id < 0 || id >= model.config().vocab_size)
      faults.push_back(fmt::format("trainable_token_indices names token {}, but the model's vocabulary has {}", id,
                                   model.config().vocab_size));
  stored.tokens[std::string(module)] = &entry;
  return true;
}

void find_missing_modules(nn::CausalLm& model, const PeftConfig& config, const StoredAdapter& stored,
                          std::vector<std::string>& faults) {
  const bool tied = model.config().tie_word_embeddings;
  for (const std::string& pattern : config.modules_to_save) {
    std::vector<std::string> meant;
    for (const std::string& name : recipes::savable_modules(model))
      // Adapters are trained without MTP layers.
      if (recipes::saved_pattern_matches(pattern, name) && mtp_part(name, model.config()).empty())
        meant.push_back(name);
    if (meant.empty() && tied && recipes::saved_pattern_matches(pattern, nn::kHeadName))
      meant.emplace_back("model.embed_tokens");
    if (meant.empty())
      faults.push_back(fmt::format("{} names {} in modules_to_save, which is no embedding, head or norm of the model",
                                   kAdapterConfigName, pattern));
    for (const std::string& name : meant)
      // A head alone: see require_tied().
      if (!stored.modules.contains(name) && !(name == kTable && stored.tied_head != nullptr && !config.ties_weights))
        faults.push_back(
            fmt::format("{} names {} in modules_to_save, but {} has no weight", kAdapterConfigName, pattern, name));
  }
}

// A copy of the embedding alone would untie the head.
void require_tied(nn::CausalLm& model, const PeftConfig& config, const StoredAdapter& stored, const fs::path& folder) {
  const bool table = stored.modules.contains("model.embed_tokens") || stored.tied_head != nullptr;
  QUENCH_CHECK_AS(ErrorCode::unsupported, !table || !model.config().tie_word_embeddings || config.ties_weights,
                  "{}: ensure_weight_tying is not set, so that the embedding was trained apart from the head, which is "
                  "tied to it in this model (tie_word_embeddings); load the adapter over an untied model",
                  (folder / kAdapterConfigName).string());
}

void require_equal_head(const SafetensorsReader& weights, const SafetensorsEntry* head,
                        const std::map<std::string, const SafetensorsEntry*>& stored) {
  const auto table = stored.find(std::string(kTable));
  if (head == nullptr || table == stored.end()) return;
  const Tensor a = Tensor::empty(table->second->shape, DType::f32), b = Tensor::empty(a.shape(), DType::f32);
  load_tensor(weights, *table->second, a);
  load_tensor(weights, *head, b);
  QUENCH_CHECK_AS(ErrorCode::corrupt, std::equal(a.data<float>(), a.data<float>() + a.numel(), b.data<float>()),
                  "{}: {} and {} differ, but the head is tied to the embedding", weights.path().string(),
                  table->second->name, head->name);
}

// Embedding and head of a resized vocabulary, in place of the model's.
void load_tables(nn::CausalLm& model, const SafetensorsReader& weights, const StoredAdapter& stored) {
  require_equal_head(weights, stored.tied_table, stored.tables);
  for (nn::Parameter* parameter : vocabulary_parameters(model)) {
    const auto found = std::ranges::find_if(
        stored.tables, [&](const auto& table) { return parameter->name == table.first + std::string(kWeight); });
    if (found == stored.tables.end() || parameter->variable.value().device().is_meta()) continue;
    QUENCH_CHECK_AS(
        ErrorCode::unsupported, parameter->variable.value().shape() == found->second->shape,
        "{}: {} cannot replace the quantized weight of the model; load the adapter over the unquantized one",
        weights.path().string(), found->second->name);
    load_tensor(weights, *found->second, parameter->variable.value());
    parameter->mark_changed();
  }
}

void throw_faults(const fs::path& file, const std::vector<std::string>& faults) {
  if (faults.empty()) return;
  constexpr std::size_t kShown = 20;
  std::string message = fmt::format("{} does not fit ({} faults):", file.string(), faults.size());
  for (std::size_t i = 0; i < std::min(faults.size(), kShown); ++i) message += "\n  " + faults[i];
  if (faults.size() > kShown) message += fmt::format("\n  and {} more", faults.size() - kShown);
  QUENCH_FAIL(ErrorCode::corrupt, "{}", message);
}

StoredAdapter read_layers(nn::CausalLm& model, const SafetensorsReader& weights, const PeftConfig& config,
                          const fs::path& config_file) {
  std::map<std::string, recipes::LinearShape> shapes;
  for (recipes::LinearShape& shape : recipes::adaptable_layers(model)) shapes.emplace(shape.name, shape);
  std::vector<std::string> faults;
  StoredAdapter stored;
  std::map<std::string, Parts>& layers = stored.layers;
  for (const SafetensorsEntry& entry : weights.header().entries) {
    if (take_update(entry, stored.updates)) continue;
    if (const auto name = parse_name(entry.name))
      layers[name->first][name->second] = &entry;
    else if (!repeats_module(entry) && !take_tokens(model, entry, config, stored, faults) &&
             !take_module(model, entry, config, stored, faults))
      faults.push_back(fmt::format("{} is not lora_A or lora_B of a linear layer", entry.name));
  }
  std::ranges::move(update_faults(model.config(), config, stored.updates, config_file), std::back_inserter(faults));
  find_missing_modules(model, config, stored, faults);
  if ((!stored.tokens.contains(std::string(kTable)) && !config.token_indices.embedding.empty()) ||
      (!stored.tokens.contains(std::string(nn::kHeadName)) && !config.token_indices.head.empty()))
    faults.push_back(fmt::format("{} names trainable_token_indices, which have no weights", kAdapterConfigName));
  for (const auto& [layer, parts] : layers) {
    const auto shape = shapes.find(layer);
    if (std::string fault = layer_fault(layer, parts, shape == shapes.end() ? nullptr : &shape->second, config);
        !fault.empty())
      faults.push_back(std::move(fault));
  }
  for (const std::string& target : config.targets) {
    const auto is_meant = [&](const auto& layer) { return recipes::lora_pattern_matches(target, layer.first); };
    const bool excluded = std::ranges::any_of(shapes, is_meant) && std::ranges::all_of(shapes, [&](const auto& layer) {
                            return !is_meant(layer) || config.excludes(layer.first);
                          });
    const bool found = std::ranges::any_of(layers, is_meant) || std::ranges::any_of(stored.updates, is_meant);
    if (!found && !excluded && !config.excludes(target))
      faults.push_back(fmt::format("{} names {}, which has no weights", kAdapterConfigName, target));
  }
  if (layers.empty() && stored.updates.empty() && stored.modules.empty() && faults.empty())
    faults.emplace_back("it holds no adapter");
  throw_faults(weights.path(), faults);
  return stored;
}

}  // namespace

PeftConfig adapter_config(const fs::path& folder) {
  const ModelSource source = ModelSource::open(folder, "adapter folder");
  QUENCH_CHECK_AS(
      ErrorCode::not_found, !source.adapter().empty(),
      "{} has no {}: expected an adapter folder, found a {}; name one that PEFT or `quench export --format {}` "
      "wrote",
      folder.string(), kAdapterConfigName, to_string(source.kind()), kPeftFormat);
  const fs::path file = folder / kAdapterConfigName;
  PeftConfig config = parse_peft_config(Json::parse_file(file), file.string());
  QUENCH_CHECK_AS(ErrorCode::not_found, fs::exists(folder / kAdapterWeightsName), "{} has no {}", folder.string(),
                  kAdapterWeightsName);
  return config;
}

std::unique_ptr<recipes::Adapters> load_adapter(nn::CausalLm& model, const fs::path& folder,
                                                const nn::ParameterOptions& options) {
  const PeftConfig config = adapter_config(folder);
  const fs::path file = folder / kAdapterConfigName;
  const SafetensorsReader weights(folder / kAdapterWeightsName);
  const StoredAdapter stored = read_layers(model, weights, config, file);
  require_tied(model, config, stored, folder);
  require_equal_head(weights, stored.tied_head, stored.modules);
  std::vector<std::string> modules;
  for (const auto& [name, entry] : stored.modules) modules.push_back(name);
  for (const auto& [name, update] : stored.updates) modules.push_back(name);
  std::vector<recipes::LoraLayer> layers;
  for (const auto& [layer, parts] : stored.layers) {
    const std::int64_t rank = config.rank_of(layer);
    layers.push_back({layer, rank, config.scale_of(layer, rank)});
  }
  auto adapters = std::make_unique<recipes::Adapters>(model, layers,
                                                      recipes::LoraOptions{.rank = config.rank,
                                                                           .alpha = config.alpha,
                                                                           .dropout = config.dropout,
                                                                           .targets = config.targets,
                                                                           .rank_pattern = {},
                                                                           .alpha_pattern = {},
                                                                           .rslora = config.rslora,
                                                                           .dora = config.dora,
                                                                           .quantize_merged = false,
                                                                           .modules_to_save = modules,
                                                                           .token_indices = config.token_indices},
                                                      options);
  load_tables(model, weights, stored);
  for (const recipes::AdapterTensor& tensor : adapters->tensors()) {
    if (tensor.value.device().is_meta()) continue;
    const bool is_module = tensor.part == recipes::AdapterPart::module;
    if (const auto update = stored.updates.find(tensor.layer); is_module && update != stored.updates.end()) {
      const double scale = config.scale_of(tensor.layer, config.rank_of(tensor.layer));
      load_update(model, weights, tensor.layer, update->second, scale, tensor.value);
    } else {
      const SafetensorsEntry* entry = is_module                                     ? stored.modules.at(tensor.layer)
                                      : tensor.part == recipes::AdapterPart::tokens ? stored.tokens.at(tensor.layer)
                                                                                    : nullptr;
      load_tensor(weights, entry != nullptr ? *entry : *stored.layers.at(tensor.layer).at(tensor.part), tensor.value);
    }
    tensor.parameter->mark_changed();
  }
  return adapters;
}

std::vector<nn::Parameter*> vocabulary_parameters(nn::CausalLm& model) {
  std::vector<nn::Parameter*> all;
  for (nn::Parameter* parameter : model.parameters())
    if (is_vocabulary(std::string_view(parameter->name).substr(0, parameter->name.rfind('.'))) &&
        parameter->name.ends_with(kWeight) && !parameter->adapter)
      all.push_back(parameter);
  return all;
}

std::optional<std::int64_t> adapter_vocabulary(const fs::path& folder) {
  if (!fs::exists(folder / kAdapterWeightsName)) return std::nullopt;  // see load_adapter()
  const SafetensorsReader weights(folder / kAdapterWeightsName);
  for (const SafetensorsEntry& entry : weights.header().entries)
    for (const std::string_view ending : {kWeight, kPatchedTable, kAdaptedTable})
      if (is_vocabulary(module_of(entry.name, ending)) && entry.shape.rank() == 2) return entry.shape[0];
  return std::nullopt;
}

}  // namespace quench
