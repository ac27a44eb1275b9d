#include "train/model_folder/named_adapters.h"

#include "core/safetensors/safetensors.h"
#include "core/system/log.h"
#include "recipes/lora/adapter_bank.h"
#include "train/model_folder/peft_config.h"
#include "train/model_folder/peft_folder.h"
#include "train/model_folder/vocabulary_updates.h"

namespace quench {
namespace {

[[noreturn]] void refuse(const NamedAdapter& adapter, std::string_view file, std::string_view key,
                         std::string_view what) {
  QUENCH_FAIL(ErrorCode::unsupported,
              "adapter {}: {}: {}: adapters that share a model have {}; use it alone, or merge it with `quench "
              "merge-lora`",
              adapter.name, (adapter.folder / file).string(), key, what);
}

void check(const NamedAdapter& adapter) {
  const PeftConfig config = adapter_config(adapter.folder);
  constexpr std::string_view kLinear = "low-rank updates of linear layers alone";
  if (config.dora) refuse(adapter, kAdapterConfigName, "use_dora", "no magnitudes of their own");
  if (!config.modules_to_save.empty()) refuse(adapter, kAdapterConfigName, "modules_to_save", kLinear);
  if (!config.token_indices.embedding.empty() || !config.token_indices.head.empty())
    refuse(adapter, kAdapterConfigName, "trainable_token_indices", kLinear);
  const SafetensorsReader weights(adapter.folder / kAdapterWeightsName);
  VocabularyUpdates updates;
  for (const SafetensorsEntry& entry : weights.header().entries)
    if (take_update(entry, updates)) refuse(adapter, kAdapterWeightsName, entry.name, kLinear);
  if (adapter_vocabulary(adapter.folder))
    refuse(adapter, kAdapterWeightsName, "weights of the embedding or the head", kLinear);
}

}  // namespace

void check_named_adapters(std::span<const NamedAdapter> adapters) {
  for (const NamedAdapter& adapter : adapters) check(adapter);
}

void attach_named_adapters(nn::CausalLm& model, std::span<const NamedAdapter> adapters) {
  check_named_adapters(adapters);
  // f32 on the host: scales are folded in before the one rounding.
  nn::ParameterOptions options;
  options.trainable = false;
  std::vector<std::unique_ptr<recipes::Adapters>> loaded;
  std::vector<recipes::NamedAdapters> named;
  for (const NamedAdapter& adapter : adapters) {
    loaded.push_back(load_adapter(model, adapter.folder, options));
    named.push_back({adapter.name, loaded.back().get()});
  }
  const std::int64_t bytes = recipes::attach_adapter_bank(named, model.options().dtype, model.options().device);
  QUENCH_LOG_INFO("{} adapters: {:.1f} MiB", adapters.size(), static_cast<double>(bytes) / (1 << 20));
}

}  // namespace quench
