// QAT for a GGUF file: weights in the grid of the file's types, as its readers compute them.

#include "core/ops/quantize/round_gguf.h"
#include "recipes/qat/qat_embedding.h"
#include "recipes/qat/qat_experts.h"
#include "recipes/qat/qat_linear.h"
#include "recipes/recipe.h"

namespace quench::recipes {
namespace {

// A format, or the reason for none.
struct RowsPlan {
  FakeFormat format;
  std::string problem;
};

RowsPlan plan_rows(const nn::LinearInfo& layer, const RecipeOptions& options) {
  RowsPlan plan{.format = {.kind = FakeFormat::Kind::gguf}, .problem = {}};
  std::vector<nn::LinearPart> parts = layer.parts;
  if (parts.empty()) parts.push_back({layer.name, layer.out_features});
  if (parts.size() > kMostGgufParts) {
    plan.problem = fmt::format("it has {} parts, at most {} are supported", parts.size(), kMostGgufParts);
    return plan;
  }
  const DeviceType device = options.target.value_or(layer.device).type;
  bool any = options.gguf_types == nullptr;  // part with a type
  for (const nn::LinearPart& part : parts) {
    GgufRows rows{.rows = part.rows};
    if (options.gguf_types != nullptr) {
      const auto type = options.gguf_types->find(part.name);
      rows.is_whole = type == options.gguf_types->end();
      if (!rows.is_whole) rows.type = type->second;
      any = any || !rows.is_whole;
    }
    if (!rows.is_whole && device != DeviceType::meta && !can_round_gguf(rows.type, device)) {
      plan.problem =
          fmt::format("there is no kernel for {} on {} devices", block_format(rows.type).name, to_string(device));
      return plan;
    }
    plan.format.gguf[plan.format.gguf_parts++] = rows;
  }
  if (!any)
    plan.problem = fmt::format("{} stores it in high precision", options.gguf_scheme);
  else if (const auto found = plan.format.problem(layer.out_features, layer.in_features))
    plan.problem = found->reason;
  return plan;
}

QatScheme scheme_of(const RowsPlan& plan) {
  return {"qat_gguf", {}, plan.format};
}

LinearPlan plan_gguf_linear(const nn::LinearInfo& layer, const RecipeOptions& options) {
  const RowsPlan plan = plan_rows(layer, options);
  if (!plan.problem.empty()) return {nullptr, plan.problem, {}, "recipe.gguf_scheme"};
  return {std::make_shared<QatLinear>(scheme_of(plan), options.keep_weights), {}, {}};
}

ExpertPlan plan_gguf_experts(const nn::LinearInfo& layer, const RecipeOptions& options) {
  const RowsPlan plan = plan_rows(layer, options);
  if (!plan.problem.empty()) return {nullptr, plan.problem, "recipe.gguf_scheme"};
  return {qat_experts(scheme_of(plan), options.keep_weights), {}};
}

EmbeddingPlan plan_gguf_table(const nn::LinearInfo& table, const RecipeOptions& options) {
  nn::LinearInfo whole = table;
  whole.parts.clear();
  const RowsPlan plan = plan_rows(whole, options);
  if (!plan.problem.empty()) return {nullptr, plan.problem, "recipe.gguf_scheme"};
  return {qat_embedding(plan.format), {}};
}

std::string gguf_scheme(const RecipeOptions& options) {
  return options.gguf_scheme;
}

constexpr std::string_view kGgufKeys[] = {"keep_weights", "gguf_scheme", "rules"};

}  // namespace

// Shared tests run it in Q4_0: RMS error 8.6% of normal values.
const Recipe kQatGguf{"qat_gguf",
                      "trains for a GGUF file: weights in the grid of its types, whole mixes too",
                      plan_gguf_linear,
                      {.output_relative_l2 = 0.12, .gradient_relative_l2 = 0.15, .loss_relative = 0.05},
                      {.keys = kGgufKeys, .required = RequiredLayers::some, .takes_head = true, .scheme = gguf_scheme},
                      plan_gguf_experts,
                      plan_gguf_table};

}  // namespace quench::recipes
