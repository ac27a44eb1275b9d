#include "export/budget/bit_budget.h"

#include <algorithm>
#include <map>

#include "core/system/log.h"
#include "export/budget/planner.h"
#include "recipes/convert.h"

namespace quench {
namespace {

std::string_view name_of(const Scheme* scheme) {
  return scheme == nullptr ? "high precision" : std::string_view(scheme->name);
}

}  // namespace

SchemePlan plan_schemes(nn::CausalLm& model, const std::vector<ModelTensor>& tensors, const nn::ModelConfig& config,
                        const QuantizationRules& rules, const ExportFormat& format, const FolderReader* reader,
                        const BitBudget& budget, std::string_view option, const QuantizationProgress& progress) {
  Planner planner(tensors, config, rules, format, reader, budget);
  (void)planner.choose(option);  // out of reach: before the costs
  SchemePlan plan{.measured = rules.calibration != nullptr};
  OptionChoice choice;
  if (plan.measured) {
    planner.add_costs(model, *rules.calibration);
    choice =
        budget.search_steps > 0 ? planner.search(model, *rules.calibration, plan, progress) : planner.choose(option);
  } else {
    const Importance importance =
        rules.imatrix.empty() ? Importance() : Importance(read_imatrix(rules.imatrix), tensors, config, rules.imatrix);
    QUENCH_LOG_WARN(
        "{}: without calibration data the sensitivity of layers is not measured: the choice goes by the relative "
        "errors of their {}; name data (--calibration)",
        option, importance.defined() ? "outputs" : "weights");
    planner.add_costs(importance);
    choice = planner.choose(option);
  }
  planner.describe(choice, plan);
  return plan;
}

void apply_plan(const SchemePlan& plan, QuantizationRules& rules) {
  std::map<std::string_view, std::int64_t> weights;
  std::int64_t most = 0;
  for (const PlannedLayer& layer : plan.layers) {
    if (layer.layer == kPlannedTable) {
      rules.embeddings = layer.scheme;
      continue;
    }
    rules.mixed[layer.layer] = layer.scheme;
    if (layer.scheme == nullptr) continue;
    const std::int64_t sum = weights[layer.scheme->name] += layer.weights;
    if (sum <= most) continue;
    most = sum;
    rules.scheme = layer.scheme;
  }
}

std::string to_text(const SchemePlan& plan) {
  struct Row {
    std::string layers;
    std::size_t count = 0;
    std::vector<std::pair<std::string_view, std::size_t>> schemes;
  };
  std::vector<Row> rows;
  for (const PlannedLayer& layer : plan.layers) {
    const std::string name = recipes::without_index(layer.layer);
    auto row = std::ranges::find(rows, name, &Row::layers);
    if (row == rows.end()) row = rows.insert(rows.end(), Row{name, 0, {}});
    ++row->count;
    const std::string_view scheme = name_of(layer.scheme);
    const auto same = std::ranges::find(row->schemes, scheme, &std::pair<std::string_view, std::size_t>::first);
    if (same == row->schemes.end())
      row->schemes.emplace_back(scheme, 1);
    else
      ++same->second;
  }
  std::string text =
      fmt::format("chosen: {:.3f} bits a weight, {} {:.4g}\n", plan.bits_per_weight,
                  plan.measured ? "expected KL divergence in nats a token" : "sum of relative errors", plan.cost);
  if (plan.search)
    text +=
        fmt::format("  measured on {} tokens: {:.4g} nats, {:.4g} for {} before {} trials, of which {} were better\n",
                    plan.search->tokens, plan.search->divergence, plan.search->start_divergence, plan.search->start,
                    plan.search->trials, plan.search->taken);
  for (const Row& row : rows) {
    std::string schemes;
    for (const auto& [name, count] : row.schemes)
      schemes += fmt::format("{}{} {}", schemes.empty() ? "" : ", ", name, count);
    text += fmt::format("  {:<44} x{:<4} {}\n", row.layers, row.count, schemes);
  }
  return text;
}

Json to_json(const SchemePlan& plan) {
  Json json = Json::object(), layers = Json::object();
  Json rules = Json::array();
  for (const PlannedLayer& layer : plan.layers) {
    layers.set(layer.layer, layer.scheme == nullptr ? Json() : Json(layer.scheme->name));
    if (layer.layer != kPlannedTable)
      rules.push_back(fmt::format("{}={}", layer.layer, layer.scheme == nullptr ? "none" : layer.scheme->name));
  }
  QuantizationRules applied;
  apply_plan(plan, applied);
  json.set("scheme", applied.scheme == nullptr ? Json() : Json(applied.scheme->name));
  json.set("bits_per_weight", plan.bits_per_weight);
  json.set("estimated_bytes", plan.bytes);
  json.set("cost", plan.cost);
  json.set("cost_unit", plan.measured ? "kl_nats_per_token" : "relative_error");
  if (plan.search) {
    Json search = Json::object();
    search.set("tokens", plan.search->tokens);
    search.set("start", plan.search->start);
    search.set("start_kl_nats_per_token", plan.search->start_divergence);
    search.set("kl_nats_per_token", plan.search->divergence);
    search.set("trials", plan.search->trials);
    search.set("better_trials", plan.search->taken);
    json.set("search", std::move(search));
  }
  json.set("layers", std::move(layers));
  json.set("rules", std::move(rules));
  return json;
}

}  // namespace quench
