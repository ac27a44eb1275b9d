#include "train/model_folder/peft_folder.h"

#include <map>

#include "core/ops/elementwise.h"
#include "core/safetensors/safetensors.h"
#include "core/system/file.h"
#include "core/system/output_folder.h"
#include "core/system/temporary.h"
#include "train/model_folder/model_folder.h"
#include "train/model_folder/peft_config.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "base_model.model.";

struct Pair {
  const SafetensorsEntry* a = nullptr;
  const SafetensorsEntry* b = nullptr;
};

// "base_model.model.<layer>.lora_A.weight"; empty and null for other names.
std::pair<std::string, const SafetensorsEntry * Pair::*> parse_name(const std::string& name) {
  for (const auto& [suffix, which] : {std::pair{".lora_A.weight", &Pair::a}, {".lora_B.weight", &Pair::b}})
    if (name.starts_with(kPrefix) && name.ends_with(suffix))
      return {name.substr(kPrefix.size(), name.size() - kPrefix.size() - std::string_view(suffix).size()), which};
  return {std::string(), nullptr};
}

// What is wrong with one layer's pair; empty: nothing.
std::string pair_fault(const std::string& layer, const Pair& pair, const recipes::LinearShape* shape,
                       const PeftConfig& config) {
  if (shape == nullptr) return fmt::format("{} is no linear layer of the model", layer);
  if (pair.a == nullptr || pair.b == nullptr)
    return fmt::format("{} has no lora_{}", layer, pair.a == nullptr ? 'A' : 'B');
  const std::int64_t rank = config.rank_of(layer);
  for (const SafetensorsEntry* entry : {pair.a, pair.b}) {
    const Shape expected = entry == pair.a ? Shape{rank, shape->in_features} : Shape{shape->out_features, rank};
    if (!(entry->shape == expected))
      return fmt::format("{}.lora_{} has shape {}; the model and the config's rank {} ask for {}", layer,
                         entry == pair.a ? 'A' : 'B', entry->shape.to_string(), rank, expected.to_string());
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

std::map<std::string, Pair> read_pairs(nn::CausalLm& model, const SafetensorsReader& weights,
                                       const PeftConfig& config) {
  std::map<std::string, recipes::LinearShape> shapes;
  for (recipes::LinearShape& shape : recipes::adaptable_layers(model)) shapes.emplace(shape.name, shape);
  std::vector<std::string> faults;
  std::map<std::string, Pair> pairs;
  for (const SafetensorsEntry& entry : weights.header().entries) {
    const auto [layer, which] = parse_name(entry.name);
    if (which == nullptr)
      faults.push_back(fmt::format("{} is no lora_A or lora_B of a linear layer", entry.name));
    else
      pairs[layer].*which = &entry;
  }
  for (const auto& [layer, pair] : pairs) {
    const auto shape = shapes.find(layer);
    if (std::string fault = pair_fault(layer, pair, shape == shapes.end() ? nullptr : &shape->second, config);
        !fault.empty())
      faults.push_back(std::move(fault));
  }
  for (const std::string& target : config.targets) {
    bool found = false;
    for (const auto& [layer, pair] : pairs) found = found || recipes::lora_pattern_matches(target, layer);
    if (!found) faults.push_back(fmt::format("{} names {}, which has no weights", kAdapterConfigName, target));
  }
  if (pairs.empty() && faults.empty()) faults.emplace_back("it holds no adapter");
  throw_faults(weights.path(), faults);
  return pairs;
}

}  // namespace

bool is_adapter_folder(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / kAdapterConfigName, ignored);
}

std::unique_ptr<recipes::Adapters> load_adapter(nn::CausalLm& model, const fs::path& folder,
                                                const nn::ParameterOptions& options) {
  QUENCH_CHECK_AS(ErrorCode::not_found, is_adapter_folder(folder), "{} has no {}: it is no adapter folder",
                  folder.string(), kAdapterConfigName);
  const fs::path file = folder / kAdapterConfigName;
  const PeftConfig config = parse_peft_config(Json::parse_file(file), file.string());
  QUENCH_CHECK_AS(ErrorCode::not_found, fs::exists(folder / kAdapterWeightsName), "{} has no {}", folder.string(),
                  kAdapterWeightsName);
  const SafetensorsReader weights(folder / kAdapterWeightsName);
  const std::map<std::string, Pair> pairs = read_pairs(model, weights, config);
  std::vector<recipes::LoraLayer> layers;
  for (const auto& [layer, pair] : pairs) {
    const std::int64_t rank = pair.a->shape[0];
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
                                                                           .quantize_merged = false},
                                                      options);
  for (const recipes::AdapterTensor& tensor : adapters->tensors()) {
    if (tensor.value.device().is_meta()) continue;
    const Pair& pair = pairs.at(tensor.layer);
    load_tensor(weights, tensor.is_b ? *pair.b : *pair.a, tensor.value);
    tensor.parameter->mark_changed();
  }
  return adapters;
}

void save_adapter_folder(nn::CausalLm& model, const recipes::Adapters& adapters, const ExportTarget& target,
                         const AdapterFolderOptions& options) {
  require_export_target(target);
  const fs::path folder = resolved_path(target.folder);
  remove_stale_temporaries(folder.parent_path(), folder.filename().string());
  StagingFolder staging(folder);
  std::vector<Tensor> kept;  // the bytes, until they are written
  std::vector<SafetensorsItem> items;
  for (const recipes::AdapterTensor& tensor : adapters.tensors()) {
    const Tensor host = tensor.value.to(Device{});
    Tensor stored = Tensor::empty(host.shape(), options.dtype);
    cast({host, stored});
    kept.push_back(stored);
    items.push_back({fmt::format("{}{}.lora_{}.weight", kPrefix, tensor.layer, tensor.is_b ? 'B' : 'A'),
                     options.dtype,
                     stored.shape(),
                     {static_cast<const std::byte*>(stored.raw_data()), stored.nbytes()}});
  }
  write_safetensors(staging.path() / kAdapterWeightsName, items);
  const Json config =
      peft_config_json(adapters.layers(), recipes::adaptable_layers(model), adapters.options(), options.base);
  write_file_atomically(staging.path() / kAdapterConfigName, config.dump(2) + "\n");
  publish_export(staging, target);
}

}  // namespace quench
