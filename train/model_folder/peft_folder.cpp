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
#include "export/schemes/finite_values.h"
#include "train/model_folder/model_folder.h"
#include "train/model_folder/peft_config.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "base_model.model.";

constexpr std::array<std::pair<recipes::AdapterPart, std::string_view>, 3> kPartNames = {
    {{recipes::AdapterPart::a, "lora_A.weight"},
     {recipes::AdapterPart::b, "lora_B.weight"},
     {recipes::AdapterPart::magnitude, "lora_magnitude_vector"}}};

std::string_view name_of(recipes::AdapterPart part) {
  return std::ranges::find(kPartNames, part, [](const auto& row) { return row.first; })->second;
}

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

void throw_faults(const fs::path& file, const std::vector<std::string>& faults) {
  if (faults.empty()) return;
  constexpr std::size_t kShown = 20;
  std::string message = fmt::format("{} does not fit ({} faults):", file.string(), faults.size());
  for (std::size_t i = 0; i < std::min(faults.size(), kShown); ++i) message += "\n  " + faults[i];
  if (faults.size() > kShown) message += fmt::format("\n  and {} more", faults.size() - kShown);
  QUENCH_FAIL(ErrorCode::corrupt, "{}", message);
}

std::map<std::string, Parts> read_layers(nn::CausalLm& model, const SafetensorsReader& weights,
                                         const PeftConfig& config) {
  std::map<std::string, recipes::LinearShape> shapes;
  for (recipes::LinearShape& shape : recipes::adaptable_layers(model)) shapes.emplace(shape.name, shape);
  std::vector<std::string> faults;
  std::map<std::string, Parts> layers;
  for (const SafetensorsEntry& entry : weights.header().entries) {
    if (const auto name = parse_name(entry.name))
      layers[name->first][name->second] = &entry;
    else
      faults.push_back(fmt::format("{} is not lora_A or lora_B of a linear layer", entry.name));
  }
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
    const bool found = std::ranges::any_of(layers, is_meant);
    if (!found && !excluded && !config.excludes(target))
      faults.push_back(fmt::format("{} names {}, which has no weights", kAdapterConfigName, target));
  }
  if (layers.empty() && faults.empty()) faults.emplace_back("it holds no adapter");
  throw_faults(weights.path(), faults);
  return layers;
}

}  // namespace

std::unique_ptr<recipes::Adapters> load_adapter(nn::CausalLm& model, const fs::path& folder,
                                                const nn::ParameterOptions& options) {
  const ModelSource source = ModelSource::open(folder, "adapter folder");
  QUENCH_CHECK_AS(
      ErrorCode::not_found, !source.adapter().empty(),
      "{} has no {}: expected an adapter folder, found a {}; name one that PEFT or `quench export --format {}` "
      "wrote",
      folder.string(), kAdapterConfigName, to_string(source.kind()), kPeftFormat);
  const fs::path file = folder / kAdapterConfigName;
  const PeftConfig config = parse_peft_config(Json::parse_file(file), file.string());
  QUENCH_CHECK_AS(ErrorCode::not_found, fs::exists(folder / kAdapterWeightsName), "{} has no {}", folder.string(),
                  kAdapterWeightsName);
  const SafetensorsReader weights(folder / kAdapterWeightsName);
  const std::map<std::string, Parts> stored = read_layers(model, weights, config);
  std::vector<recipes::LoraLayer> layers;
  for (const auto& [layer, parts] : stored) {
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
                                                                           .quantize_merged = false},
                                                      options);
  for (const recipes::AdapterTensor& tensor : adapters->tensors()) {
    if (tensor.value.device().is_meta()) continue;
    load_tensor(weights, *stored.at(tensor.layer).at(tensor.part), tensor.value);
    tensor.parameter->mark_changed();
  }
  return adapters;
}

AdapterBase adapter_base(const fs::path& folder) {
  const fs::path file = folder / kAdapterBaseName;
  if (!fs::is_regular_file(file)) return {};
  const Json json = Json::parse_file(file, {.max_bytes = std::size_t{1} << 16});
  const auto text = [&](std::string_view key) {
    const Json* value = json.is_object() ? json.find(key) : nullptr;
    return value != nullptr && value->is_string() ? value->as_string() : std::string();
  };
  const auto dtype = dtype_from_string(text("dtype"));
  QUENCH_CHECK_AS(ErrorCode::corrupt, !text("hash").empty() && dtype.has_value(),
                  "{}: expected a hash and the dtype of the weights that the adapter was trained over", file.string());
  return {text("hash"), *dtype};
}

void save_adapter_folder(nn::CausalLm& model, const recipes::Adapters& adapters, const ExportTarget& target,
                         const AdapterFolderOptions& options) {
  require_file_format(target, kPeftFormat, "");
  require_export_target(target);
  const fs::path folder = resolved_path(target.folder);
  remove_stale_temporaries(folder.parent_path(), folder.filename().string());
  StagingFolder staging(folder);
  std::vector<Tensor> kept;  // bytes until written
  std::vector<SafetensorsItem> items;
  for (const recipes::AdapterTensor& tensor : adapters.tensors(options.whole)) {
    const Tensor host = tensor.value.to(Device{});
    Tensor stored = Tensor::empty(host.shape(), options.dtype);
    cast({host, stored});
    std::string name = fmt::format("{}{}.{}", kPrefix, tensor.layer, name_of(tensor.part));
    require_finite(stored, host, name);
    kept.push_back(stored);
    items.push_back({std::move(name),
                     options.dtype,
                     stored.shape(),
                     {static_cast<const std::byte*>(stored.raw_data()), stored.nbytes()}});
  }
  write_safetensors(staging.path() / kAdapterWeightsName, items);
  if (const AdapterBase& base = options.trained_over; !base.hash.empty())
    write_file_atomically(staging.path() / kAdapterBaseName,
                          Json(Json::Object{{"hash", base.hash}, {"dtype", to_string(base.dtype)}}).dump(2) + "\n");
  const Json config =
      peft_config_json(adapters.layers(), recipes::adaptable_layers(model), adapters.options(), options.base);
  write_file_atomically(staging.path() / kAdapterConfigName, config.dump(2) + "\n");
  publish_export(staging, target);
}

}  // namespace quench
