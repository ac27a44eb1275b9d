#include "train/config/presets.h"

#include <algorithm>
#include <vector>

#include "core/system/nearest_name.h"
#include "export/table/tied_head.h"
#include "train/model_source/model_source.h"

namespace quench {

const EmbeddedConfig* find_embedded_config(std::string_view kind, std::string_view name) {
  for (const EmbeddedConfig& config : embedded_configs()) {
    if (config.kind == kind && config.name == name) return &config;
  }
  return nullptr;
}

std::string nearest_embedded_config(std::string_view kind, std::string_view name) {
  std::vector<std::string> names;
  for (const EmbeddedConfig& config : embedded_configs()) {
    if (config.kind == kind) names.emplace_back(config.name);
  }
  return nearest_name(name, names);
}

Json model_config(const ModelSection& model) {
  Json config = Json::object();
  if (!model.path.empty()) {
    config = ModelSource::open(model.path).config();
    if (model.init != ModelSection::Init::random) untie_other_head(model.path, config);
    config.erase("quantization_config");  // handled by the weight reader
  } else if (!model.preset.empty()) {
    const EmbeddedConfig* preset = find_embedded_config("models", model.preset);
    QUENCH_CHECK_AS(ErrorCode::not_found, preset != nullptr, "model.preset: no embedded model is called {}",
                    model.preset);
    config = Json::parse(preset->text, {.source = preset->name});
  }
  const Json* vocabulary = config.find("vocab_size");
  const Json* named = model.fields.find("vocab_size");
  const bool grows = !model.add_tokens.empty();  // ids keep their meaning
  if (!grows && vocabulary != nullptr && named != nullptr && *named != *vocabulary)
    for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) config.erase(key);
  for (const auto& [key, value] : model.fields.as_object()) config.set(key, value);
  return config;
}

}  // namespace quench
