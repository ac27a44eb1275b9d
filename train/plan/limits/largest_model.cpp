#include "train/plan/limits/largest_model.h"

#include <algorithm>

#include "core/system/check.h"
#include "train/config/presets.h"
#include "train/metrics/step_metrics.h"
#include "train/session/model_setup.h"

namespace quench {
namespace {

bool is_misfit(const Error& error) {
  return error.code() == ErrorCode::bad_config || error.code() == ErrorCode::unsupported;
}

// Embedded models, largest first.
std::vector<ModelRung> ladder() {
  std::vector<ModelRung> rungs;
  for (const EmbeddedConfig& model : embedded_configs()) {
    if (model.kind != "models") continue;
    const ModelSection section{.preset = std::string(model.name)};
    rungs.push_back({.name = model.name, .parameters = resolve_model_config(section).parameter_count()});
  }
  std::ranges::stable_sort(rungs, std::ranges::greater{}, &ModelRung::parameters);
  return rungs;
}

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace

const ModelRung* LargestModel::largest() const noexcept {
  return !rungs.empty() && rungs.back().estimate && rungs.back().estimate->fits() ? &rungs.back() : nullptr;
}

LargestModel largest_model(const ConfigOfModel& config_of, Device target, const Cluster& cluster) {
  LargestModel result;
  for (ModelRung& rung : ladder()) {
    try {
      RunConfig config = config_of(rung.name);
      rung.estimate = fit_run(config, target, cluster);
    } catch (const Error& error) {
      if (!is_misfit(error)) throw;
      rung.fault = first_line(error.what());
    }
    QUENCH_CHECK_AS(ErrorCode::bad_config, !rung.estimate || rung.estimate->available_bytes.has_value(),
                    "--max-model: the memory of {} is unknown; name a GPU (--gpu H100) or a size (--memory-limit 80GB)",
                    target.to_string());
    result.rungs.push_back(std::move(rung));
    if (result.largest() != nullptr) break;
  }
  return result;
}

std::string to_string(const LargestModel& ladder) {
  const ModelRung* largest = ladder.largest();
  std::string text = largest == nullptr ? "no embedded model fits\n"
                                        : fmt::format("largest model    {}, {} parameters\n", largest->name,
                                                      format_count(largest->parameters));
  text += fmt::format("\n{:<26}{:>20}{:>14}\n", "embedded model", "parameters", "peak, GiB");
  for (const ModelRung& rung : ladder.rungs)
    text += fmt::format("{:<26}{:>20}{}\n", rung.name, format_count(rung.parameters),
                        rung.estimate
                            ? fmt::format("{:>14.1f}  {}", static_cast<double>(rung.estimate->total_bytes) / (1 << 30),
                                          rung.estimate->fits() ? "fits" : "does not fit")
                            : fmt::format("{:>14}  {}", "", rung.fault));
  if (largest != nullptr) text += fmt::format("\nthe run with {}\n\n{}", largest->name, to_string(*largest->estimate));
  return text;
}

Json to_json(const LargestModel& ladder) {
  const ModelRung* largest = ladder.largest();
  Json json = Json::object();
  json.set("max_model", largest != nullptr ? Json(std::string(largest->name)) : Json());
  json.set("parameters", largest != nullptr ? Json(largest->parameters) : Json());
  Json rungs = Json::array();
  for (const ModelRung& rung : ladder.rungs) {
    Json entry = Json::object();
    entry.set("name", std::string(rung.name));
    entry.set("parameters", rung.parameters);
    entry.set("total_bytes", rung.estimate ? Json(rung.estimate->total_bytes) : Json());
    entry.set("fits", rung.estimate && rung.estimate->fits());
    entry.set("fault", rung.estimate ? Json() : Json(rung.fault));
    rungs.push_back(std::move(entry));
  }
  json.set("models", std::move(rungs));
  json.set("estimate", largest != nullptr ? to_json(*largest->estimate) : Json());
  return json;
}

}  // namespace quench
