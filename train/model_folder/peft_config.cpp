#include "train/model_folder/peft_config.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/system/check.h"

namespace quench {
namespace {

// Unsupported PEFT keys.
struct Foreign {
  std::string_view key;
  std::string_view what;
  std::string_view neutral;  // JSON list: no effect
};

constexpr Foreign kForeign[] = {
    {"bias", "trained biases", R"([null, "none"])"},
    {"lora_bias", "biases of B", "[null, false]"},
    {"fan_in_fan_out", "transposed weights", "[null, false]"},
    {"layer_replication", "replicated layers", "[null, []]"},
    {"target_parameters", "adapters of single parameters", "[null, []]"},
    {"alora_invocation_tokens", "activated LoRA", "[null, []]"},
    {"use_qalora", "QALoRA", "[null, false]"},
    {"use_bdlora", "block-diagonal LoRA", "[null, false]"},
    {"arrow_config", "Arrow routing", "[null]"},
    {"velora_config", "VeLoRA", "[null]"},
    {"monteclora_config", "MonteCLoRA", "[null]"},
    {"kasa_config", "KaSA", "[null]"},
    // Other values modify the base weight on loading (PiSSA, OLoRA, CorDA, LoftQ, LoRA-GA).
    {"init_lora_weights",
     "adapters over a base that their initialisation changes (convert the adapter with PEFT's "
     "path_initial_model_for_weight_conversion)",
     R"([null, true, false, "gaussian", "eva", "orthogonal"])"},
};

// Regular expression of a name or suffix.
std::string end_of_name(std::string_view name) {
  std::string text = "(.*\\.)?";
  for (const char c : name) text += c == '.' ? "\\." : std::string(1, c);
  return text + "$";
}

// With PEFT's matching.
LayerPattern pattern(const std::string& expression, std::string_view key, std::string_view source) {
  try {
    return LayerPattern("re:" + expression);
  } catch (const Error& error) {
    QUENCH_FAIL(ErrorCode::unsupported, "{}: {}: {}", source, key, error.what());
  }
}

template <class Value>
Value first_match(const std::vector<std::pair<LayerPattern, Value>>& patterns, std::string_view layer,
                  Value otherwise) {
  for (const auto& [pattern, value] : patterns)
    if (pattern.matches(layer)) return value;
  return otherwise;
}

const Json& member(const Json& json, std::string_view key, std::string_view source) {
  const Json* value = json.find(key);
  QUENCH_CHECK_AS(ErrorCode::corrupt, value != nullptr, "{} has no \"{}\"", source, key);
  return *value;
}

// By last components that name chosen modules alone, else by path; null: none.
Json saved_names(const recipes::SavedModules& saved, const std::vector<std::string>& savable) {
  std::set<std::string> chosen, names;
  for (const recipes::SavedModules::Module& module : saved.modules()) chosen.insert(module.name);
  if (chosen.empty()) return {};
  for (const std::string& name : chosen) {
    const std::string last = name.substr(name.rfind('.') + 1);
    const bool alone = std::ranges::all_of(savable, [&](const std::string& other) {
      return chosen.contains(other) || !recipes::saved_pattern_matches(last, other);
    });
    names.insert(alone ? last : name);
  }
  std::erase_if(names, [&](const std::string& name) {  // "norm" names "input_layernorm" too
    return std::ranges::any_of(
        names, [&](const std::string& other) { return other != name && recipes::saved_pattern_matches(other, name); });
  });
  Json list = Json::array();
  for (const std::string& name : names) list.push_back(name);
  return list;
}

// A list, of the embedding, or an object of lists by module.
recipes::TokenIds token_indices(const Json& json, std::string_view source) {
  const Json* indices = json.find("trainable_token_indices");
  if (indices == nullptr || indices->is_null()) return {};
  const auto ids_of = [](const Json& list) {
    std::vector<std::int64_t> ids;
    for (const Json& id : list.as_array()) ids.push_back(id.as_int());
    return ids;
  };
  if (!indices->is_object()) return {ids_of(*indices), {}};
  recipes::TokenIds ids;
  for (const auto& [module, list] : indices->as_object()) {
    const bool embedding = module.ends_with("embed_tokens");
    QUENCH_CHECK_AS(ErrorCode::unsupported, embedding || module.ends_with(nn::kHeadName),
                    "{}: trainable_token_indices is {}: rows of embed_tokens and lm_head are read", source,
                    indices->dump());
    (embedding ? ids.embedding : ids.head) = ids_of(list);
  }
  return ids;
}

Json token_indices_json(const recipes::TokenRows& tokens) {
  Json modules = Json::object();
  for (const recipes::TokenRows::Module& module : tokens.modules()) {
    Json ids = Json::array();
    for (const std::int64_t id : module.ids) ids.push_back(id);
    if (module.name != nn::kHeadName && tokens.modules().size() == 1) return ids;
    modules.set(module.name.substr(module.name.rfind('.') + 1), std::move(ids));
  }
  return modules;
}

double alpha_of(const recipes::LoraLayer& layer, const recipes::LoraOptions& options) {
  const auto rank = static_cast<double>(layer.rank);
  return layer.scale * (options.rslora ? std::sqrt(rank) : rank);
}

}  // namespace

bool PeftConfig::excludes(std::string_view layer) const {
  return std::ranges::any_of(excluded, [&](const LayerPattern& pattern) { return pattern.matches(layer); });
}

std::int64_t PeftConfig::rank_of(std::string_view layer) const {
  return first_match(rank_pattern, layer, rank);
}

double PeftConfig::scale_of(std::string_view layer, std::int64_t r) const {
  const double a = first_match(alpha_pattern, layer, alpha);
  return a / (rslora ? std::sqrt(static_cast<double>(r)) : static_cast<double>(r));
}

PeftConfig parse_peft_config(const Json& json, std::string_view source) {
  QUENCH_CHECK_AS(ErrorCode::corrupt, json.is_object(), "{} is {}, expected an object", source, json.type_name());
  const Json& type = member(json, "peft_type", source);
  QUENCH_CHECK_AS(ErrorCode::unsupported, type.is_string() && type.as_string() == "LORA",
                  "{}: peft_type is {}; LORA is read", source, type.dump());
  for (const Foreign& foreign : kForeign) {
    const Json* value = json.find(foreign.key);
    if (value == nullptr) continue;
    const Json neutral = Json::parse(foreign.neutral);
    QUENCH_CHECK_AS(ErrorCode::unsupported, std::ranges::count(neutral.as_array(), *value) > 0,
                    "{}: {} is {}: {} are not supported", source, foreign.key, value->dump(), foreign.what);
  }
  PeftConfig config;
  config.rank = member(json, "r", source).as_int();
  config.alpha = member(json, "lora_alpha", source).as_double();
  QUENCH_CHECK_AS(ErrorCode::corrupt, config.rank > 0 && config.alpha > 0, "{}: r is {}, lora_alpha {}", source,
                  config.rank, config.alpha);
  if (const Json* dropout = json.find("lora_dropout"); dropout != nullptr && !dropout->is_null())
    config.dropout = dropout->as_double();
  if (const Json* rslora = json.find("use_rslora"); rslora != nullptr && !rslora->is_null())
    config.rslora = rslora->as_bool();
  if (const Json* dora = json.find("use_dora"); dora != nullptr && !dora->is_null()) config.dora = dora->as_bool();
  if (const Json* targets = json.find("target_modules"); targets != nullptr && targets->is_array())
    for (const Json& target : targets->as_array()) config.targets.push_back(target.as_string());
  if (const Json* excluded = json.find("exclude_modules"); excluded != nullptr && excluded->is_string())
    config.excluded.push_back(pattern("(?:" + excluded->as_string() + ")$", "exclude_modules", source));
  else if (excluded != nullptr && excluded->is_array())
    for (const Json& name : excluded->as_array())
      config.excluded.push_back(pattern(end_of_name(name.as_string()), "exclude_modules", source));
  if (const Json* saved = json.find("modules_to_save"); saved != nullptr && !saved->is_null())
    for (const Json& name : saved->as_array()) config.modules_to_save.push_back(name.as_string());
  if (const Json* tied = json.find("ensure_weight_tying"); tied != nullptr && !tied->is_null())
    config.ties_weights = tied->as_bool();
  config.token_indices = token_indices(json, source);
  const auto each_pattern = [&](std::string_view key, const auto& add) {
    const Json* patterns = json.find(key);
    if (patterns == nullptr || !patterns->is_object()) return;
    for (const auto& [name, value] : patterns->as_object()) add(pattern("(.*\\.)?(" + name + ")$", key, source), value);
  };
  each_pattern("rank_pattern",
               [&](LayerPattern p, const Json& value) { config.rank_pattern.emplace_back(p, value.as_int()); });
  each_pattern("alpha_pattern",
               [&](LayerPattern p, const Json& value) { config.alpha_pattern.emplace_back(p, value.as_double()); });
  return config;
}

Json peft_config_json(const recipes::Adapters& adapters, const std::vector<recipes::LinearShape>& all,
                      const std::vector<std::string>& savable, const std::string& base) {
  const std::vector<recipes::LoraLayer>& layers = adapters.layers();
  const recipes::LoraOptions& options = adapters.options();
  const auto last = [](const std::string& name) { return name.substr(name.rfind('.') + 1); };
  std::map<std::string, std::int64_t> missing;  // layers without adapter, by kind
  for (const recipes::LinearShape& shape : all) ++missing[last(shape.name)];
  for (const recipes::LoraLayer& layer : layers) --missing[last(layer.name)];
  std::set<std::string> targets;
  Json ranks = Json::object(), alphas = Json::object();
  for (const recipes::LoraLayer& layer : layers) {
    targets.insert(missing[last(layer.name)] == 0 ? last(layer.name) : layer.name);
    if (layer.rank != options.rank) ranks.set(layer.name, layer.rank);
    if (const double alpha = alpha_of(layer, options); std::abs(alpha - options.alpha) > 1e-9 * options.alpha)
      alphas.set(layer.name, alpha);
  }
  Json names = Json::array();
  for (const std::string& target : targets) names.push_back(target);
  Json config(Json::Object{{"peft_type", "LORA"},
                           {"task_type", "CAUSAL_LM"},
                           {"base_model_name_or_path", base},
                           {"r", options.rank},
                           {"lora_alpha", options.alpha},
                           {"lora_dropout", options.dropout},
                           {"target_modules", std::move(names)},
                           {"rank_pattern", std::move(ranks)},
                           {"alpha_pattern", std::move(alphas)},
                           {"use_rslora", options.rslora},
                           {"use_dora", options.dora},
                           {"bias", "none"},
                           {"fan_in_fan_out", false},
                           {"init_lora_weights", true},
                           {"inference_mode", true},
                           {"modules_to_save", saved_names(adapters.saved(), savable)},
                           {"layers_to_transform", Json()},
                           {"layers_pattern", Json()},
                           {"revision", Json()}});
  if (!adapters.tokens().modules().empty())
    config.set("trainable_token_indices", token_indices_json(adapters.tokens()));
  if (adapters.saved().ties_head()) config.set("ensure_weight_tying", true);
  return config;
}

}  // namespace quench
