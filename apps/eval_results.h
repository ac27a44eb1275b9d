#pragma once
// Results of `quench eval`, as text and JSON.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json/json.h"
#include "train/evaluation/choice_scoring.h"
#include "train/evaluation/divergence.h"
#include "train/evaluation/perplexity.h"

namespace quench {

// In a comparison.
enum class EvalRole : std::uint8_t {
  model,
  baseline,  // unquantized
  ptq,       // PTQ of the baseline
};

struct EvalResult {
  EvalRole role = EvalRole::model;
  std::string model{};    // as on the command line
  std::string adapter{};  // or empty
  std::string recipe{};   // conversion of the layers; or empty
  Json convention{};      // scoring of texts; null without texts
  std::optional<PerplexityReport> perplexity{};
  std::string reference{};  // model of `divergence`, as on the command line; or empty
  std::optional<DivergenceReport> divergence{};
  std::vector<std::pair<std::string_view, ChoiceReport>> tasks{};  // by task name
};

// "word_perplexity", "hellaswag.acc_norm".
struct EvalFigure {
  std::string name;
  double value = 0;  // NaN: unknown
};
[[nodiscard]] std::vector<EvalFigure> figures_of(const EvalResult& result);

// Recovered PTQ loss: (model - ptq) / (baseline - ptq). NaN if unknown or for a PTQ loss below 0.1% of the metric.
[[nodiscard]] std::vector<EvalFigure> recovery(const EvalResult& model, const EvalResult& baseline,
                                               const EvalResult& ptq);

void print_result(const EvalResult& result);
// One column per result; with a baseline and a ptq result: recovery per metric, if defined.
void print_comparison(const std::vector<EvalResult>& results);
// Object for one result, else array.
[[nodiscard]] Json eval_json(const std::vector<EvalResult>& results);

}  // namespace quench
