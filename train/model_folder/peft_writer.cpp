#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <vector>

#include "core/json/json_member.h"
#include "core/ops/elementwise.h"
#include "core/safetensors/safetensors.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "core/system/output_folder.h"
#include "core/system/temporary.h"
#include "export/formats/export_mark.h"
#include "export/schemes/finite_values.h"
#include "train/model_folder/carried_files.h"
#include "train/model_folder/peft_config.h"
#include "train/model_folder/peft_folder.h"
#include "train/model_folder/peft_names.h"

namespace quench {

namespace fs = std::filesystem;

namespace {

// PEFT 0.21 fuses gate and up of experts on load, with twice the folder's own rank and alpha, which it scales by
// alpha / rank. Faults by which these adapters have another update then, or are refused; empty: none.
std::string fused_experts_fault(const recipes::Adapters& adapters) {
  const recipes::LoraOptions& options = adapters.options();
  bool patterns = false;
  std::set<std::string> gates, ups;
  for (const recipes::LoraLayer& layer : adapters.layers()) {
    const std::size_t end = layer.name.rfind('.');
    if (layer.name.find(".experts.") == std::string::npos) continue;
    const std::string part = layer.name.substr(end + 1);
    const double rank = static_cast<double>(layer.rank);
    patterns = patterns || layer.rank != options.rank ||
               layer.scale != options.alpha / (options.rslora ? std::sqrt(rank) : rank);
    const bool gate = part == "gate_proj" || part == "w1", up = part == "up_proj" || part == "w3";
    if (gate || up) (gate ? gates : ups).insert(layer.name.substr(0, end));
  }
  std::vector<std::string_view> faults;
  if (gates != ups) faults.emplace_back("refuses adapters of gate or up of experts alone");
  if (options.rslora && !gates.empty())
    faults.emplace_back("scales gate and up of experts by the root of 2 too much with rslora");
  if (patterns) faults.emplace_back("ignores rank_pattern and alpha_pattern for experts");
  return fmt::to_string(fmt::join(faults, ", and "));
}

// With which the base's generated text ends; none for one that is not a folder here.
std::vector<std::int64_t> end_ids(const fs::path& base) {
  if (const auto ids = stored_generation_ids(base); ids && !ids->eos.empty()) return ids->eos;
  const fs::path config = base / "config.json";
  return fs::is_regular_file(config) ? token_ids_of(Json::parse_file(config)).eos : std::vector<std::int64_t>();
}

}  // namespace

AdapterBase adapter_base(const fs::path& folder) {
  const fs::path file = folder / kAdapterBaseName;
  if (!fs::is_regular_file(file)) return {};
  const Json json = Json::parse_file(file, {.max_bytes = std::size_t{1} << 16});
  const std::string hash = find_text(json, {"hash"});
  const auto dtype = dtype_from_string(find_text(json, {"dtype"}));
  QUENCH_CHECK_AS(ErrorCode::corrupt, !hash.empty() && dtype.has_value(),
                  "{}: expected a hash and the dtype of the weights that the adapter was trained over", file.string());
  return {hash, *dtype};
}

void save_adapter_folder(nn::CausalLm& model, const recipes::Adapters& adapters, const ExportTarget& target,
                         const AdapterFolderOptions& options) {
  require_file_format(target, kPeftFormat, "");
  require_export_target(target);
  using namespace peft_names;
  const fs::path folder = resolved_path(target.folder);
  remove_stale_temporaries(folder.parent_path(), folder.filename().string());
  StagingFolder staging(folder);
  std::vector<Tensor> kept;  // bytes until written
  std::vector<SafetensorsItem> items;
  const auto add = [&](std::string name, const Tensor& value) {
    const Tensor host = value.to(Device{});
    const Tensor stored = Tensor::empty(host.shape(), options.dtype);
    cast({host, stored});
    require_finite(stored, host, name);
    kept.push_back(stored);
    items.push_back({std::move(name),
                     options.dtype,
                     stored.shape(),
                     {static_cast<const std::byte*>(stored.raw_data()), stored.nbytes()}});
  };
  for (const recipes::AdapterTensor& tensor : adapters.tensors(options.whole)) {
    // PEFT stores a tied head too.
    if (tensor.part == recipes::AdapterPart::module && adapters.saved().ties_head() && tensor.value.shape().rank() == 2)
      add(fmt::format("{}{}{}", kPrefix, nn::kHeadName, kWeight), tensor.value);
    add(fmt::format("{}{}.{}", kPrefix, tensor.layer, name_of(tensor.part)), tensor.value);
  }
  if (options.vocabulary) {
    for (nn::Parameter* parameter : vocabulary_parameters(model)) {
      const std::string module = parameter->name.substr(0, parameter->name.rfind('.'));
      const auto is_own = [&](const auto& other) { return other.name == module; };
      if (std::ranges::any_of(adapters.saved().modules(), is_own)) continue;  // stored as a copy
      const bool patched = std::ranges::any_of(adapters.tokens().modules(), is_own);
      add(fmt::format("{}{}{}", kPrefix, module, patched ? kPatchedTable : kWeight),
          options.whole ? options.whole(*parameter) : parameter->variable.value());
    }
  }
  write_safetensors(staging.path() / kAdapterWeightsName, items, export_metadata());
  if (const AdapterBase& base = options.trained_over; !base.hash.empty())
    write_file_atomically(staging.path() / kAdapterBaseName,
                          Json(Json::Object{{"hash", base.hash}, {"dtype", to_string(base.dtype)}}).dump(2) + "\n");
  const Json config =
      peft_config_json(adapters, recipes::adaptable_layers(model), recipes::savable_modules(model), options.base);
  write_file_atomically(staging.path() / kAdapterConfigName, config.dump(2) + "\n");
  if (const auto& ids = options.generation_ids; ids && ids->eos != end_ids(options.base)) {
    Json generation = Json::object();
    set_token_ids(generation, *ids);
    write_file_atomically(staging.path() / "generation_config.json", generation.dump(2) + "\n");
  }
  if (options.tokenizer != nullptr) options.tokenizer->save(staging.path());
  adapt_tokenizer_config(staging.path() / "tokenizer_config.json");
  const recipes::LoraOptions& lora = adapters.options();
  write_file_atomically(
      staging.path() / kModelCardName,
      adapter_card(model_name(folder),
                   fmt::format("{}LoRA of rank {}, alpha {:g}, in {} layers", lora.dora ? "DoRA, " : "", lora.rank,
                               lora.alpha, adapters.layers().size()),
                   options.training));
  publish_export(staging, target);
  if (const std::string fault = fused_experts_fault(adapters); !fault.empty())
    QUENCH_LOG_WARN("{}: PEFT (0.21) {}: for use there, merge the adapters (quench merge-lora)", target.folder.string(),
                    fault);
}

}  // namespace quench
