#include "train/config/config_diff.h"

#include <algorithm>
#include <optional>
#include <set>

#include "nn/spec/model_config.h"
#include "train/config/fields/field.h"
#include "train/config/presets.h"
#include "train/config/recipe_choice.h"
#include "train/config/value_codec.h"

namespace quench {
namespace {

std::string shown(const Json* value) {
  return value == nullptr || value->is_null() ? "(unset)" : value->dump();
}

std::optional<Json> readable_model(const ModelSection& model) {
  try {
    return model_config(model);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Absent, null or false, which are the same for flags that a family has off by default.
bool is_unset(const Json* value) {
  return value == nullptr || value->is_null() || (value->is_bool() && !value->as_bool());
}

Json with_value(const Json& model, const std::string& key, const Json* value) {
  Json other = model;
  if (value != nullptr)
    other.set(key, *value);
  else
    other.erase(key);
  return other;
}

// Whether a model is the same with this value of a member.
bool is_same_model(const Json& model, const std::string& key, const Json* value) {
  try {
    return nn::parse_model_config(model, "model")
        .computes_as(nn::parse_model_config(with_value(model, key, value), "model"));
  } catch (const Error&) {
    return false;
  }
}

constexpr std::string_view kLength = "max_position_embeddings";

// True if another context length is another RoPE: dynamic scaling, or yarn and longrope with a factor or an original
// length that follow from it.
bool length_scales_rope(const Json& model, const Json* length) {
  const Json other = with_value(model, std::string(kLength), length);
  try {
    const nn::ModelConfig a = nn::parse_model_config(model, "model"), b = nn::parse_model_config(other, "model");
    const auto is_dynamic = [](const nn::RopeScaling& rope) { return rope.type == nn::RopeScaling::Type::dynamic; };
    return is_dynamic(a.rope) || (a.local_rope && is_dynamic(*a.local_rope)) || a.rope != b.rope ||
           a.local_rope != b.local_rope;
  } catch (const Error&) {
    return true;
  }
}

// Also of fields outside the table, which a later model family may use.
void diff_architectures(const Json& before, const Json& after, std::vector<ConfigChange>& changes) {
  std::vector<std::string> keys;
  for (const Field& field : field_table()) {
    if (field.architecture) keys.emplace_back(field.key());
  }
  for (const Json* config : {&before, &after}) {
    for (const auto& [key, value] : config->as_object()) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  }
  for (const std::string& key : keys) {
    const Json* old_value = before.find(key);
    const Json* new_value = after.find(key);
    if (is_unset(old_value) && is_unset(new_value) && is_same_model(before, key, new_value)) continue;
    if (old_value != nullptr && new_value != nullptr && *old_value == *new_value) continue;
    const Field* field = find_field("model." + key);
    ResumePolicy policy = field == nullptr ? ResumePolicy::free : field->resume;
    if (key == kLength && length_scales_rope(before, new_value)) policy = ResumePolicy::guarded;
    changes.push_back({"model." + key, shown(old_value), shown(new_value), policy});
  }
}

// Exclusions that only one of two configs names, as in checkpoints of versions that stored the default, are compared
// with those of the other's recipe.
std::vector<std::string> exclusions(const RecipeSection& recipe) {
  const bool open = recipe.name == kAutoRecipe;
  return layer_filter(recipe.filter, open ? recipes::kBf16 : recipes::find_recipe(recipe.name)).exclude;
}

bool same_exclusions(const RecipeSection& a, const RecipeSection& b) {
  return a.filter.exclude.has_value() != b.filter.exclude.has_value() && exclusions(a) == exclusions(b);
}

}  // namespace

std::vector<ConfigChange> config_diff(const RunConfig& before, const RunConfig& after, const Json* before_model) {
  std::vector<ConfigChange> changes;
  const std::optional<Json> old_model =
      before_model != nullptr ? std::optional(*before_model) : readable_model(before.model);
  const std::optional<Json> new_model = readable_model(after.model);
  bool compared_models = !old_model || !new_model;
  for (const Field& field : field_table()) {
    if (field.architecture) {
      if (!compared_models) diff_architectures(*old_model, *new_model, changes);
      compared_models = true;
      continue;
    }
    const Json old_value = field.write(before);
    const Json new_value = field.write(after);
    if (old_value == new_value) continue;
    if (field.path == "recipe.filter.exclude" && same_exclusions(before.recipe, after.recipe)) continue;
    changes.push_back({field.path, shown(&old_value), shown(&new_value), field.resume});
  }
  return changes;
}

Json without_neutral_keys(const Json& model) {
  Json kept = model;
  const Json* length = model.find(kLength);
  bool scales = length != nullptr;
  if (scales && length->is_integer()) {
    const Json other(length->as_int() + 1);
    scales = length_scales_rope(model, &other);
  }
  for (const Field& field : field_table()) {
    if (!field.architecture || field.resume != ResumePolicy::free || field.key() == "initializer_range") continue;
    if (field.key() != kLength || !scales) kept.erase(field.key());
  }
  return kept;
}

std::vector<ConfigChange> refused_changes(const std::vector<ConfigChange>& changes, const RunConfig& after) {
  const std::vector<std::string>& allowed = after.checkpoint.allow_changes;
  std::vector<ConfigChange> refused;
  for (const ConfigChange& change : changes) {
    const bool named = std::find(allowed.begin(), allowed.end(), change.key) != allowed.end();
    if (change.policy == ResumePolicy::fixed || (change.policy == ResumePolicy::guarded && !named))
      refused.push_back(change);
  }
  return refused;
}

void require_resumable(const std::vector<ConfigChange>& changes, const RunConfig& after) {
  const std::vector<ConfigChange> refused = refused_changes(changes, after);
  if (refused.empty()) return;
  std::string text = "this run cannot resume from the checkpoint, whose config differs:";
  std::vector<std::string> guarded = after.checkpoint.allow_changes;
  bool has_fixed = false;
  for (const ConfigChange& change : refused) {
    text += fmt::format("\n  {}: {} -> {}", change.key, change.before, change.after);
    if (change.policy == ResumePolicy::fixed) {
      text += " (the stored state would not fit)";
      has_fixed = true;
    } else if (std::find(guarded.begin(), guarded.end(), change.key) == guarded.end()) {
      guarded.push_back(change.key);
    }
  }
  // A folder that is named stays when the name changes.
  const char* const other = after.run.folder == "runs/" + after.run.name ? "--run.name" : "--run.folder";
  if (has_fixed) {
    text += fmt::format(
        "\nrestore the old values, start another run with another {}, or start anew with --checkpoint.resume=never in "
        "another --checkpoint.folder",
        other);
  } else {
    text += fmt::format("\nto resume anyway: --checkpoint.allow_changes={}; for another run: another {}",
                        fmt::join(guarded, ","), other);
  }
  throw Error(ErrorCode::bad_config, text);
}

std::string to_string(const std::vector<ConfigChange>& changes) {
  std::string text;
  for (const ConfigChange& change : changes)
    text += fmt::format("{}{}: {} -> {}", text.empty() ? "" : "\n", change.key, change.before, change.after);
  return text;
}

}  // namespace quench
