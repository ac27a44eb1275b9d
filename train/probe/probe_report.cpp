#include <algorithm>
#include <cmath>

#include "train/metrics/step_metrics.h"
#include "train/probe/probe.h"

namespace quench {
namespace {

struct ErrorSummary {
  std::size_t layers = 0;
  ProductErrors median;
  ProductErrors worst;
  std::string worst_layer;  // by error of y

  [[nodiscard]] Json json(const ProductErrors& errors) const {
    return Json(Json::Object{{"y", errors.y}, {"dx", errors.dx}, {"dw", errors.dw}});
  }
};

// NaN compares as largest.
bool less(double a, double b) {
  return std::isnan(b) ? !std::isnan(a) : a < b;
}

ErrorSummary summarize(const ProbeResult& result, const std::string& kind, const std::string& recipe) {
  ErrorSummary summary;
  std::vector<const LayerError*> rows;
  for (const LayerError& error : result.errors)
    if (error.recipe == recipe && last_component(error.layer) == kind) rows.push_back(&error);
  summary.layers = rows.size();
  if (rows.empty()) return summary;
  for (double ProductErrors::*product : {&ProductErrors::y, &ProductErrors::dx, &ProductErrors::dw}) {
    std::ranges::sort(rows, less, [&](const LayerError* row) { return row->errors.*product; });
    summary.median.*product = rows[rows.size() / 2]->errors.*product;
    summary.worst.*product = rows.back()->errors.*product;
    if (product == &ProductErrors::y) summary.worst_layer = rows.back()->layer;
  }
  return summary;
}

// "float8", or the reason against it.
std::string decision(const ProbeResult& result, const LayerTimes& layer, const RecipeTime& time) {
  if (!time.skipped_because.empty()) return "bf16: " + time.skipped_because;
  std::size_t single = 0;
  for (const Exclusion& exclusion :
       exclusions(time.recipe, result.layers, result.errors, result.bound, result.sampled)) {
    if (exclusion.pattern == layer.kind.pattern())
      return exclusion.why == Excluded::by_time ? "bf16: not faster" : "bf16: error beyond the bound";
    single += last_component(exclusion.pattern) == layer.kind.name ? 1 : 0;
  }
  return single == 0 ? "float8" : fmt::format("float8 but for {} layers beyond the bound", single);
}

std::string decibel_text(double error) {
  return error == 0 ? "exact" : fmt::format("{:.1f}", decibels(error));
}

std::string exclude_text(const std::vector<std::string>& exclude) {
  return exclude.empty() ? "" : fmt::format(" without {}", fmt::join(exclude, ", "));
}

}  // namespace

std::string to_string(const ProbeResult& r) {
  std::string text =
      fmt::format("{} ({}): micro-batches of {} tokens in {}; errors with {} weights on {}{}\n", r.device.to_string(),
                  r.device_name, format_count(r.tokens), to_string(r.dtype), r.real_weights ? "the model's" : "random",
                  r.real_data ? "the run's first micro-batch" : "random tokens", r.sampled ? ", in two layers" : "");
  if (r.measured_tokens < r.tokens)
    text += fmt::format(
        "Measured on {} tokens of a micro-batch, within the time limit (--seconds 0: no limit): fixed costs, such as "
        "casts of\nweights, have a larger share than in the whole micro-batch.\n",
        format_count(r.measured_tokens));
  if (r.emulated)
    text +=
        "Float8 is emulated here (no float8 tensor cores, or recipe.emulate): the times below are those of "
        "emulation.\n";
  text += fmt::format("\n{:<13}{:>16}  {:<28}{:>10}{:>10}{:>8}{:>7}{:>7}{:>9}  {}\n", "layer", "in -> out", "recipe",
                      "ms", "of bf16", "dB: y", "dx", "dw", "worst y", "layer runs");
  for (const LayerTimes& layer : r.layers) {
    text += fmt::format("{:<13}{:>16}  {:<28}{:>10.3f}\n", layer.kind.name,
                        fmt::format("{} -> {}", layer.kind.in_features, layer.kind.out_features), "bf16",
                        layer.high_precision);
    for (const RecipeTime& time : layer.recipes) {
      text += fmt::format("{:<13}{:>16}  {:<28}", "", "", time.recipe);
      if (!time.skipped_because.empty()) {
        text += fmt::format("{:>51}  {}\n", "", decision(r, layer, time));
        continue;
      }
      const ErrorSummary errors = summarize(r, layer.kind.name, time.recipe);
      text += fmt::format("{:>10.3f}{:>9.2f}x", time.milliseconds, layer.high_precision / time.milliseconds);
      if (errors.layers == 0)
        text += fmt::format("{:>31}", "");
      else
        text += fmt::format("{:>8}{:>7}{:>7}{:>8.1f}%", decibel_text(errors.median.y), decibel_text(errors.median.dx),
                            decibel_text(errors.median.dw), 100 * errors.worst.y);
      text += fmt::format("  {}\n", decision(r, layer, time));
    }
  }
  text += fmt::format(
      "\nForward and backward of one micro-batch, including the adjacent norms and SwiGLU. dB: median signal to "
      "noise\nratio of the GEMMs; worst y: largest relative error, {:.1f}% is allowed (gradients {:.1f}%).\n",
      100 * r.bound.output, 100 * r.bound.gradient());
  text +=
      fmt::format("\n{:<57}{:>10}{:>10}\n", fmt::format("training step of {} layers", r.short_layers), "ms", "of bf16");
  for (const Candidate& candidate : r.candidates)
    text += fmt::format("{:<57}{:>10.3f}{:>9.2f}x\n", candidate.recipe + exclude_text(candidate.exclude),
                        candidate.milliseconds, r.candidates.front().milliseconds / candidate.milliseconds);
  text += fmt::format("\nchosen: {}{}: {}\n", r.choice.name, exclude_text(r.choice.exclude), r.choice.reason);
  return text;
}

Json to_json(const ProbeResult& r) {
  Json layers = Json::array();
  for (const LayerTimes& layer : r.layers) {
    Json row(Json::Object{{"layer", layer.kind.name},
                          {"in_features", layer.kind.in_features},
                          {"out_features", layer.kind.out_features},
                          {"bf16_ms", layer.high_precision}});
    Json recipes = Json::array();
    for (const RecipeTime& time : layer.recipes) {
      Json entry(Json::Object{{"recipe", time.recipe}, {"runs", decision(r, layer, time)}});
      if (time.skipped_because.empty()) {
        entry.set("ms", time.milliseconds);
        entry.set("speed_up", layer.high_precision / time.milliseconds);
        const ErrorSummary errors = summarize(r, layer.kind.name, time.recipe);
        if (errors.layers > 0) {
          entry.set("layers", static_cast<std::int64_t>(errors.layers));
          entry.set("median_error", errors.json(errors.median));
          entry.set("worst_error", errors.json(errors.worst));
          entry.set("worst_layer", errors.worst_layer);
        }
      }
      recipes.push_back(std::move(entry));
    }
    row.set("recipes", std::move(recipes));
    layers.push_back(std::move(row));
  }
  Json errors = Json::array();
  for (const LayerError& e : r.errors)
    errors.push_back(Json(Json::Object{
        {"layer", e.layer}, {"recipe", e.recipe}, {"y", e.errors.y}, {"dx", e.errors.dx}, {"dw", e.errors.dw}}));
  Json candidates = Json::array();
  for (const Candidate& candidate : r.candidates) {
    Json exclude = Json::array();
    for (const std::string& pattern : candidate.exclude) exclude.push_back(pattern);
    candidates.push_back(Json(Json::Object{
        {"recipe", candidate.recipe}, {"exclude", std::move(exclude)}, {"step_ms", candidate.milliseconds}}));
  }
  return Json(Json::Object{{"device", r.device.to_string()},
                           {"device_name", r.device_name},
                           {"emulated", r.emulated},
                           {"tokens", r.tokens},
                           {"measured_tokens", r.measured_tokens},
                           {"dtype", to_string(r.dtype)},
                           {"real_data", r.real_data},
                           {"real_weights", r.real_weights},
                           {"max_error", r.bound.output},
                           {"layers", std::move(layers)},
                           {"errors", std::move(errors)},
                           {"step_layers", r.short_layers},
                           {"candidates", std::move(candidates)},
                           {"choice", to_json(r.choice)},
                           {"seconds", r.seconds}});
}

}  // namespace quench
