#include "train/config/presets.h"

#include <algorithm>
#include <cctype>

#include "core/system/nearest_name.h"
#include "export/table/tied_head.h"
#include "nn/spec/rope_override.h"
#include "train/model_source/model_source.h"

namespace quench {
namespace {

std::string in_lower_case(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

}  // namespace

const EmbeddedConfig* find_embedded_config(std::string_view kind, std::string_view name) {
  for (const EmbeddedConfig& config : embedded_configs()) {
    if (config.kind == kind && config.name == name) return &config;
  }
  return nullptr;
}

const EmbeddedConfig* find_embedded_model(std::string_view name) {
  return find_embedded_config("models", in_lower_case(name));
}

std::string nearest_embedded_config(std::string_view kind, std::string_view name) {
  std::vector<std::string> names;
  for (const EmbeddedConfig& config : embedded_configs()) {
    if (config.kind == kind) names.emplace_back(config.name);
  }
  return nearest_name(name, names);
}

const EmbeddedConfig* model_of_run(const EmbeddedConfig& run) {
  const Json document = Json::parse(run.text, {.allow_comments = true, .source = run.name});
  const Json& model = document.at("model");
  if (const Json* preset = model.find("preset")) return find_embedded_config("models", preset->as_string());
  const Json* path = model.find("path");
  if (path == nullptr) return nullptr;
  const std::string folder = in_lower_case(path->as_string());
  const EmbeddedConfig* longest = nullptr;  // longest match: phi-4-mini before phi-4
  for (const EmbeddedConfig& config : embedded_configs()) {
    const bool named = folder == config.name || folder.starts_with(fmt::format("{}-", config.name));
    if (config.kind == "models" && named && (longest == nullptr || config.name.size() > longest->name.size()))
      longest = &config;
  }
  return longest;
}

std::vector<std::string> ready_runs(std::string_view model) {
  std::vector<std::string> names;
  for (const EmbeddedConfig& config : embedded_configs()) {
    if (config.kind != "runs") continue;
    if (const EmbeddedConfig* trained = model_of_run(config); trained != nullptr && trained->name == model)
      names.emplace_back(config.name);
  }
  return names;
}

Json origin_config(const ModelSection& model) {
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
  return config;
}

Json model_config(const ModelSection& model) {
  Json config = origin_config(model);
  const Json* vocabulary = config.find("vocab_size");
  const Json* named = model.fields.find("vocab_size");
  const bool grows = !model.add_tokens.empty();  // ids keep their meaning
  if (!grows && vocabulary != nullptr && named != nullptr && *named != *vocabulary)
    for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) config.erase(key);
  nn::override_rope(model.fields, config);
  return config;
}

}  // namespace quench
