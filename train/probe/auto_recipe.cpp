#include "train/probe/auto_recipe.h"

#include "core/system/log.h"
#include "recipes/float8/hardware.h"
#include "recipes/recipe.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/plan/estimate.h"
#include "train/probe/probe.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kKey = "recipe_choice";

std::optional<RecipeChoice> choice_of(const fs::path& checkpoint) {
  const Manifest manifest = read_manifest(checkpoint);
  const Json* json = manifest.state.extra.find(kKey);
  if (json == nullptr) return std::nullopt;
  return recipe_choice_from_json(*json, checkpoint.string());
}

// Choice in the checkpoint to resume from; nullopt without one, or if saved without "auto".
std::optional<RecipeChoice> stored_choice(const RunConfig& config) {
  using Mode = ResumeFrom::Mode;
  const fs::path folder = config.checkpoint.folder;
  const ResumeFrom& from = config.checkpoint.resume;
  switch (from.mode) {
    case Mode::never: return std::nullopt;
    case Mode::step: return choice_of(folder / step_name(from.step));
    case Mode::path: return choice_of(from.path);
    case Mode::automatic:
    case Mode::must: break;
  }
  // Newest first; if its data are damaged the previous one, of the same run, is used.
  for (const CheckpointInfo& checkpoint : list_checkpoints(folder).checkpoints)
    if (checkpoint.valid && !checkpoint.superseded) return choice_of(checkpoint.path);
  return std::nullopt;
}

RecipeChoice probed_choice(const RunConfig& config, Device device) {
  QUENCH_LOG_INFO("recipe.name is \"auto\": comparing the recipes on {}", device.to_string());
  try {
    const ProbeResult probe = run_probe(config, device, {.bound = {}, .whole_model = false});
    RecipeChoice choice = probe.choice;
    choice.reason += fmt::format(" on {} of its layers ({:.0f} s)", probe.short_layers, probe.seconds);
    if (recipes::find_recipe(choice.name).capabilities.float8.empty()) return choice;
    const RunEstimate estimate = estimate_run(ResolvedConfig(config, choice), device);
    if (estimate.fits()) return choice;
    return {"bf16", {}, fmt::format("{} would be faster, but does not fit the memory", choice.name)};
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
    return {"bf16", {}, "not enough memory to compare recipes"};
  }
}

RecipeChoice found_choice(const RunConfig& config, Device device) {
  if (std::optional<RecipeChoice> stored = stored_choice(config)) {
    QUENCH_CHECK_AS(ErrorCode::bad_config,
                    !config.training.batch_invariant || !recipes::find_recipe(stored->name).capabilities.mixes_rows(),
                    "training.batch_invariant: true, but the run chose recipe.name {}, whose scales are those of all "
                    "rows together; set recipe.name to {}",
                    stored->name, recipes::kFloat8Rowwise.name);
    return *stored;
  }
  if (config.recipe.emulate) return {"bf16", {}, "recipe.emulate makes every other recipe slower"};
  if (!recipes::has_float8_gemms(device))
    return {"bf16",
            {},
            fmt::format("{} has no float8 tensor cores (recipe.name int8_rowwise is not tried)", device.to_string())};
  return probed_choice(config, device);
}

}  // namespace

RecipeChoice resolve_auto_recipe(const RunConfig& config, Device device) {
  if (config.recipe.name != kAutoRecipe) return {config.recipe.name, {}, {}};
  return found_choice(config, device);
}

void store_choice(CheckpointState& state, const ResolvedConfig& config) {
  if (config.choice()) state.extra.set(kKey, to_json(*config.choice()));
}

}  // namespace quench
