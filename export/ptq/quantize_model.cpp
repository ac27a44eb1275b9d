#include "export/ptq/quantize_model.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/system/log.h"
#include "export/imatrix/importance.h"
#include "export/mixes/tensor_types.h"
#include "export/ptq/calibrated_model.h"
#include "export/ptq/collect_imatrix.h"
#include "export/ptq/quantized_layer.h"
#include "nn/modules/linear_kernel.h"
#include "recipes/convert.h"

namespace quench {
namespace {

constexpr std::string_view kNone = "none";

// Records matching patterns.
class Chooser {
 public:
  explicit Chooser(const QuantizationRules& rules)
      : rules_(rules), rule_used_(rules.rules.size()), exclude_used_(rules.exclude.size()) {}

  LayerChoice choose(const ModelTensor& tensor) {
    if (rules_.planned) seen_.insert(tensor.layer);
    const bool named = std::ranges::any_of(rules_.rules, [&](const auto& rule) { return rule.first == tensor.layer; });
    for (std::size_t i = 0; i < rules_.exclude.size() && !named; ++i)
      if (recipes::glob_matches(rules_.exclude[i], tensor.layer)) {
        exclude_used_[i] = true;
        return {nullptr, "excluded"};
      }
    LayerChoice choice{rules_.scheme, ""};
    if (const auto mixed = rules_.mixed.find(tensor.layer); mixed != rules_.mixed.end())
      choice = {mixed->second, mixed->second == nullptr ? "the bit budget" : ""};
    else if (rules_.planned)
      choice = {nullptr, "the plan does not name it"};
    for (std::size_t i = 0; i < rules_.rules.size(); ++i)
      if (recipes::glob_matches(rules_.rules[i].first, tensor.layer)) {
        rule_used_[i] = true;
        choice = {rules_.rules[i].second, rules_.rules[i].second == nullptr ? "a rule" : ""};
        break;
      }
    if (choice.scheme == nullptr) return choice;
    if (!rules_.experts && tensor.parameter != nullptr && tensor.parameter->experts > 0)
      return {nullptr, "readers of the format do not support quantized experts"};
    if (const std::string_view reason = rules_.kept != nullptr ? rules_.kept(tensor) : ""; !reason.empty())
      return {nullptr, std::string(reason)};
    std::string problem = quantizer().problem(*choice.scheme);
    if (!problem.empty()) return {nullptr, problem};
    if (const Scheme* fits = fitting_scheme(*choice.scheme, tensor.shape[1]); fits != nullptr && fits != choice.scheme)
      choice = {.scheme = fits, .kept_because = {}, .replaced = choice.scheme};
    problem = shape_problem(choice.scheme->weights, tensor.shape[0], tensor.shape[1], choice.scheme->inputs);
    return problem.empty() ? choice : LayerChoice{nullptr, problem, choice.scheme};
  }

  [[nodiscard]] const Quantizer& quantizer() const {
    return rules_.quantizer != nullptr ? *rules_.quantizer : quantizers().front();
  }

  // Tied: no such layer.
  static bool is_default(const std::string& pattern) {
    const std::vector<std::string> patterns = QuantizationRules{}.exclude;
    return std::ranges::find(patterns, pattern) != patterns.end();
  }
  void require_all_used() const {
    for (std::size_t i = 0; i < rule_used_.size(); ++i)
      QUENCH_CHECK_AS(
          ErrorCode::bad_config, rule_used_[i], "the quantization rule for '{}' matches no linear layer{}",
          rules_.rules[i].first,
          rules_.rules[i].first == nn::kHeadName
              ? ": the head is the embedding table here (tie_word_embeddings), whose scheme embeddings names"
              : "");
    if (rules_.planned) require_planned_layers();
    for (std::size_t i = 0; i < exclude_used_.size(); ++i)
      QUENCH_CHECK_AS(ErrorCode::bad_config, exclude_used_[i] || is_default(rules_.exclude[i]),
                      "the exclusion '{}' matches no linear layer", rules_.exclude[i]);
  }

 private:
  void require_planned_layers() const {
    for (const auto& [layer, scheme] : rules_.mixed)
      QUENCH_CHECK_AS(ErrorCode::bad_config, seen_.contains(layer) || scheme == nullptr,
                      "the plan names {}, which is no linear layer of this model: it was made for another", layer);
  }

  const QuantizationRules& rules_;
  std::vector<bool> rule_used_, exclude_used_;
  std::set<std::string, std::less<>> seen_;  // layers
};

std::string bytes_text(std::uint64_t bytes) {
  return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / (1 << 20));
}

// Sets layer names.
std::vector<QuantizedLayer> chosen_tables(std::vector<ModelTensor>& tensors, const QuantizationRules& rules) {
  std::vector<QuantizedLayer> tables;
  if (rules.embeddings == nullptr) return tables;
  for (ModelTensor& tensor : tensors) {
    if (!tensor.embedding) continue;
    tensor.layer = tensor.name.substr(0, tensor.name.rfind('.'));
    const Scheme* fits = fitting_scheme(*rules.embeddings, tensor.shape[1]);
    const Scheme& scheme = fits != nullptr ? *fits : *rules.embeddings;
    const std::string problem = shape_problem(scheme.weights, tensor.shape[0], tensor.shape[1]);
    QUENCH_CHECK_AS(ErrorCode::bad_config, problem.empty(), "{} cannot be quantized under {}: {}", tensor.layer,
                    rules.embeddings->name, problem);
    tables.push_back({&tensor, {.scheme = &scheme, .kept_because = {}}});
  }
  return tables;
}

// With a scheme, or the reason for none.
std::vector<QuantizedLayer> chosen_layers(std::vector<ModelTensor>& tensors, const QuantizationRules& rules) {
  Chooser chooser(rules);
  std::vector<QuantizedLayer> layers;
  for (ModelTensor& tensor : tensors)
    if (!tensor.layer.empty() && !tensor.embedding) layers.push_back({&tensor, chooser.choose(tensor)});
  chooser.require_all_used();
  std::string reasons;
  for (const QuantizedLayer& layer : layers)
    if (const std::string& reason = layer.choice.kept_because;
        !reason.empty() && reasons.find(reason) == std::string::npos)
      reasons += (reasons.empty() ? "" : "; ") + reason;
  QUENCH_CHECK_AS(ErrorCode::bad_config,
                  std::ranges::any_of(layers, [](const auto& layer) { return layer.choice.scheme != nullptr; }),
                  "no layer of the model can be quantized as asked: {}", reasons);
  return layers;
}

// Logs layers whose widths the blocks of their types do not divide.
void tell_replaced(const std::vector<QuantizedLayer>& layers) {
  std::map<std::pair<std::string, std::string>, std::size_t> counts;  // by type and that in its place
  for (const QuantizedLayer& layer : layers)
    if (layer.choice.replaced != nullptr) ++counts[{layer.choice.replaced->name, layer.choice.scheme->name}];
  for (const auto& [types, count] : counts)
    QUENCH_LOG_INFO("{} of {} layers have widths that no blocks of {} divide: {}, as llama.cpp stores them", count,
                    layers.size(), types.first, types.second);
}

// Read or collected; undefined: none.
Importance importance_of(nn::CausalLm& model, const std::vector<ModelTensor>& tensors, const QuantizationRules& rules) {
  if (!uses_importance(rules)) return {};
  if (!rules.imatrix.empty()) return {read_imatrix(rules.imatrix), tensors, model.config(), rules.imatrix};
  if (rules.calibration == nullptr || needs_calibration(rules)) return {};
  Imatrix matrix = collect_imatrix(model, tensors, rules);
  if (!rules.save_imatrix.empty()) write_imatrix(matrix, rules.save_imatrix);
  return {std::move(matrix), tensors, model.config(), "calibration"};
}

// Throws for a layer whose type needs importance.
std::vector<float> importance_of(const QuantizedLayer& layer, const QuantizationRules& rules,
                                 const Importance& importance) {
  const Scheme* scheme = layer.choice.scheme;
  if (scheme == nullptr || !scheme->weights.blocks) return {};
  std::vector<float> values = importance.of(*layer.tensor);
  const GgufMix* mix = rules.scheme->mix != nullptr ? rules.scheme->mix : scheme->mix;
  const bool needed =
      mix != nullptr && needs_matrix(*mix, layer.tensor->layer, block_format(*scheme->weights.blocks).name);
  QUENCH_CHECK_AS(ErrorCode::bad_config, !needed || !values.empty() || layer.tensor->layer == nn::kHeadName,
                  "{}: scheme {} needs an importance matrix, and {}; name one (--imatrix, export.imatrix), or "
                  "calibration data (--calibration, export.calibration)",
                  layer.tensor->layer, scheme->name,
                  importance.defined() ? "the matrix has no entry for the layer" : "there is none");
  return values;
}

}  // namespace

std::pair<std::string, const Scheme*> parse_rule(std::string_view text, std::string_view key) {
  const std::size_t equals = text.rfind('=');
  QUENCH_CHECK_AS(ErrorCode::bad_config, equals != std::string_view::npos && equals > 0,
                  "{} '{}': expected PATTERN=SCHEME, for example \"*.down_proj=int8_weight_only\"", key, text);
  const std::string_view name = text.substr(equals + 1);
  return {std::string(text.substr(0, equals)), name == kNone ? nullptr : &require_layer_scheme(name, key)};
}

bool needs_calibration(const QuantizationRules& rules) {
  const auto scheme_needs = [](const Scheme* scheme) {
    return scheme != nullptr && scheme->inputs && needs_input_scale(*scheme->inputs);
  };
  return (rules.quantizer != nullptr && rules.quantizer->calibrated) || scheme_needs(rules.scheme) ||
         std::ranges::any_of(rules.rules, [&](const auto& rule) { return scheme_needs(rule.second); });
}

bool uses_importance(const QuantizationRules& rules) {
  const auto of_types = [](const Scheme* scheme) { return scheme != nullptr && scheme->weights.blocks; };
  return (rules.quantizer == nullptr || rules.quantizer == &quantizers().front()) &&
         (of_types(rules.scheme) ||
          std::ranges::any_of(rules.rules, [&](const auto& rule) { return of_types(rule.second); }));
}

void require_quantizable(const std::vector<ModelTensor>& tensors, const QuantizationRules& rules) {
  std::vector<ModelTensor> copies = tensors;
  (void)chosen_tables(copies, rules);
  (void)chosen_layers(copies, rules);
}

std::vector<std::pair<std::string, const Scheme*>> chosen_schemes(const std::vector<ModelTensor>& tensors,
                                                                  const QuantizationRules& rules) {
  std::vector<ModelTensor> copies = tensors;
  std::vector<std::pair<std::string, const Scheme*>> schemes;
  for (const QuantizedLayer& layer : chosen_layers(copies, rules))
    schemes.emplace_back(layer.tensor->layer, layer.choice.scheme);
  return schemes;
}

std::vector<LayerFit> layer_fits(const std::vector<ModelTensor>& tensors, const QuantizationRules& rules) {
  std::vector<LayerFit> layers;
  Chooser chooser(rules);
  for (const ModelTensor& tensor : tensors) {
    if (tensor.layer.empty() || tensor.embedding) continue;
    const LayerChoice choice = chooser.choose(tensor);
    layers.push_back({choice.unfit != nullptr ? choice.unfit : choice.scheme, tensor.shape,
                      static_cast<std::uint64_t>(tensor.shape.numel() * byte_size(tensor.dtype)),
                      choice.unfit != nullptr ? choice.kept_because : ""});
  }
  return layers;
}

std::vector<const Scheme*> schemes_of_experts(const std::vector<ModelTensor>& tensors, const QuantizationRules& rules) {
  std::vector<ModelTensor> copies = tensors;
  std::vector<const Scheme*> schemes;
  for (const QuantizedLayer& layer : chosen_layers(copies, rules))
    if (const Scheme* scheme = layer.choice.scheme; scheme != nullptr && layer.tensor->parameter->experts > 0 &&
                                                    std::ranges::find(schemes, scheme) == schemes.end())
      schemes.push_back(scheme);
  return schemes;
}

std::vector<LayerReport> quantize_model(nn::CausalLm& model, std::vector<ModelTensor>& tensors,
                                        const QuantizationRules& rules, const QuantizationProgress& progress,
                                        bool replace) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, rules.calibration != nullptr || !needs_calibration(rules),
                  "{} needs calibration data: name files of text or tokens",
                  rules.quantizer != nullptr && rules.quantizer->calibrated
                      ? fmt::format("method {}", rules.quantizer->name)
                      : fmt::format("scheme {}", rules.scheme->name));
  std::vector<QuantizedLayer> tables = chosen_tables(tensors, rules), layers = chosen_layers(tensors, rules);
  tell_replaced(layers);
  // Data for an importance matrix alone are used before.
  const bool calibrates = rules.calibration != nullptr && (needs_calibration(rules) || !uses_importance(rules));
  if (rules.calibration != nullptr && rules.gather_unit) rules.gather_unit(model.units().front().parameters);
  const Importance importance = importance_of(model, tensors, rules);
  for (QuantizedLayer& table : tables) {
    QuantizationRules nearest = rules;
    nearest.quantizer = nullptr;
    quantize_layer(table, nearest, nullptr);
    if (calibrates || replace) use_quantized(model, std::span(&table, 1));
  }
  if (calibrates) {
    quantize_calibrated(model, layers, rules, progress);
  } else {
    std::uint64_t total = 0, done = 0;
    for (const QuantizedLayer& layer : layers) total += static_cast<std::uint64_t>(layer.tensor->shape.numel());
    for (std::size_t first = 0; first < layers.size();) {
      const std::span group = same_parameter(layers, first);
      share_amax(group, rules);
      for (QuantizedLayer& layer : group) {
        quantize_layer(layer, rules, nullptr, importance_of(layer, rules, importance));
        done += static_cast<std::uint64_t>(layer.tensor->shape.numel());
        if (progress) progress(done, total);
      }
      if (replace) use_quantized(model, group);
      first += group.size();
    }
  }
  std::vector<LayerReport> report;
  for (QuantizedLayer& table : tables) report.push_back(std::move(table.report));
  for (QuantizedLayer& layer : layers) report.push_back(std::move(layer.report));
  return report;
}

std::string to_text(const std::vector<LayerReport>& report) {
  struct Row {
    std::string layer, scheme, kept_because;
    std::size_t count = 0;
    double least = 0, most = 0;  // SQNR range
    std::uint64_t bytes = 0;
  };
  std::vector<Row> rows;
  std::uint64_t bytes = 0, dense = 0;
  for (const LayerReport& layer : report) {
    const std::string name = recipes::without_index(layer.layer);
    auto row = std::ranges::find_if(rows, [&](const Row& known) {
      return known.layer == name && known.scheme == layer.scheme && known.kept_because == layer.kept_because;
    });
    if (row == rows.end()) row = rows.insert(rows.end(), {name, layer.scheme, layer.kept_because});
    row->least = row->count == 0 ? layer.sqnr : std::min(row->least, layer.sqnr);
    row->most = row->count == 0 ? layer.sqnr : std::max(row->most, layer.sqnr);
    ++row->count;
    row->bytes += layer.bytes;
    bytes += layer.bytes;
    dense += layer.dense_bytes;
  }
  std::string text;
  for (const Row& row : rows) {
    const bool kept = row.scheme.empty();
    const std::string noise = kept                          ? ""
                              : row.most - row.least < 0.05 ? fmt::format("{:.1f} dB", row.least)
                                                            : fmt::format("{:.1f} to {:.1f} dB", row.least, row.most);
    text += fmt::format("  {:<44} x{:<4} {:<28} {:>17}  {:>12}{}\n", row.layer, row.count,
                        kept ? "high precision" : row.scheme, noise, bytes_text(row.bytes),
                        kept ? fmt::format("  (kept: {})", row.kept_because) : "");
  }
  return text + fmt::format("  layers: {}, {:.2f} of {}\n", bytes_text(bytes),
                            static_cast<double>(bytes) / static_cast<double>(std::max<std::uint64_t>(dense, 1)),
                            bytes_text(dense));
}

Json to_json(const std::vector<LayerReport>& report) {
  Json rows = Json::array();
  for (const LayerReport& row : report) {
    Json json = Json::object();
    json.set("layer", row.layer);
    json.set("scheme", row.scheme.empty() ? Json() : Json(row.scheme));
    if (!row.kept_because.empty()) json.set("kept_because", row.kept_because);
    if (!row.scheme.empty()) json.set("sqnr_db", row.sqnr);
    json.set("bytes", row.bytes);
    json.set("high_precision_bytes", row.dense_bytes);
    rows.push_back(std::move(json));
  }
  return rows;
}

}  // namespace quench
