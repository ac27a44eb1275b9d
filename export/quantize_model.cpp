#include "export/quantize_model.h"

#include <algorithm>
#include <cmath>

#include "recipes/convert.h"

namespace quench {
namespace {

constexpr std::string_view kNone = "none";

struct Choice {
  const Scheme* scheme = nullptr;
  std::string kept_because;
};

// Remembers which patterns have matched a layer.
class Chooser {
 public:
  explicit Chooser(const QuantizationRules& rules)
      : rules_(rules), rule_used_(rules.rules.size()), exclude_used_(rules.exclude.size()) {}

  Choice choose(const ModelTensor& tensor) {
    for (std::size_t i = 0; i < rules_.exclude.size(); ++i)
      if (recipes::glob_matches(rules_.exclude[i], tensor.layer)) {
        exclude_used_[i] = true;
        return {nullptr, "excluded"};
      }
    Choice choice{rules_.scheme, ""};
    for (std::size_t i = 0; i < rules_.rules.size(); ++i)
      if (recipes::glob_matches(rules_.rules[i].first, tensor.layer)) {
        rule_used_[i] = true;
        choice = {rules_.rules[i].second, rules_.rules[i].second == nullptr ? "a rule" : ""};
        break;
      }
    if (choice.scheme == nullptr) return choice;
    std::string problem = quantizer().problem(choice.scheme->weights);
    if (problem.empty()) problem = shape_problem(choice.scheme->weights, tensor.shape[0], tensor.shape[1]);
    return problem.empty() ? choice : Choice{nullptr, problem};
  }

  [[nodiscard]] const Quantizer& quantizer() const {
    return rules_.quantizer != nullptr ? *rules_.quantizer : quantizers().front();
  }

  // lm_head is excluded by default; a tied head has no layer of that name.
  void require_all_used() const {
    for (std::size_t i = 0; i < rule_used_.size(); ++i)
      QUENCH_CHECK_AS(ErrorCode::bad_config, rule_used_[i], "the quantization rule for '{}' matches no linear layer",
                      rules_.rules[i].first);
    for (std::size_t i = 0; i < exclude_used_.size(); ++i)
      QUENCH_CHECK_AS(ErrorCode::bad_config, exclude_used_[i] || rules_.exclude == QuantizationRules{}.exclude,
                      "the exclusion '{}' matches no linear layer", rules_.exclude[i]);
  }

 private:
  const QuantizationRules& rules_;
  std::vector<bool> rule_used_, exclude_used_;
};

std::string bytes_text(std::uint64_t bytes) {
  return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

std::pair<std::string, const Scheme*> parse_rule(std::string_view text, std::string_view key) {
  const std::size_t equals = text.rfind('=');
  QUENCH_CHECK_AS(ErrorCode::bad_config, equals != std::string_view::npos && equals > 0,
                  "{} '{}': expected PATTERN=SCHEME, for example \"*.down_proj=int8_weight_only\"", key, text);
  const std::string_view name = text.substr(equals + 1);
  return {std::string(text.substr(0, equals)), name == kNone ? nullptr : &require_scheme(name, key)};
}

std::vector<LayerReport> quantize_model(std::vector<ModelTensor>& tensors, const QuantizationRules& rules,
                                        const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  Chooser chooser(rules);
  std::vector<Choice> choices;
  std::uint64_t total = 0, done = 0;
  for (const ModelTensor& tensor : tensors) {
    if (tensor.layer.empty()) continue;
    choices.push_back(chooser.choose(tensor));
    total += static_cast<std::uint64_t>(tensor.shape.numel());
  }
  chooser.require_all_used();
  std::string reasons;
  for (const Choice& choice : choices)
    if (!choice.kept_because.empty() && reasons.find(choice.kept_because) == std::string::npos)
      reasons += (reasons.empty() ? "" : "; ") + choice.kept_because;
  QUENCH_CHECK_AS(ErrorCode::bad_config,
                  std::ranges::any_of(choices, [](const Choice& choice) { return choice.scheme != nullptr; }),
                  "no layer of the model can be quantized as asked: {}", reasons);
  std::vector<LayerReport> report;
  std::size_t next = 0;
  for (ModelTensor& tensor : tensors) {
    if (tensor.layer.empty()) continue;
    const Choice& choice = choices[next++];
    LayerReport row{.layer = tensor.layer, .kept_because = choice.kept_because};
    const Tensor weight = tensor.value();
    row.bytes = row.dense_bytes = weight.nbytes();
    if (choice.scheme != nullptr) {
      auto quantized = std::make_shared<QuantizedWeight>(
          chooser.quantizer().quantize(weight, choice.scheme->weights, tensor.name, rules.scale_dtype));
      row.scheme = choice.scheme->name;
      row.sqnr = signal_to_noise(weight, pack(*quantized, tensor.name));
      row.bytes = quantized->nbytes();
      tensor.scheme = choice.scheme;
      tensor.quantized = std::move(quantized);
    }
    report.push_back(std::move(row));
    done += static_cast<std::uint64_t>(tensor.shape.numel());
    if (progress) progress(done, total);
  }
  return report;
}

std::string to_text(const std::vector<LayerReport>& report) {
  std::string text;
  std::uint64_t bytes = 0, dense = 0;
  for (const LayerReport& row : report) {
    if (row.scheme.empty())
      text += fmt::format("  {:<44} {:<28} {:>8}  {:>12}  (kept: {})\n", row.layer, "high precision", "",
                          bytes_text(row.bytes), row.kept_because);
    else
      text +=
          fmt::format("  {:<44} {:<28} {:>5.1f} dB  {:>12}\n", row.layer, row.scheme, row.sqnr, bytes_text(row.bytes));
    bytes += row.bytes;
    dense += row.dense_bytes;
  }
  return text + fmt::format("  linear layers: {}, {:.2f} of {}\n", bytes_text(bytes),
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
