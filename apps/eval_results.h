#pragma once
// Results of `quench eval` for one or several models, as text and JSON.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json/json.h"
#include "train/evaluation/choice_scoring.h"
#include "train/evaluation/perplexity.h"

namespace quench {

// Role of a model in a comparison.
enum class EvalRole : std::uint8_t {
  model,
  baseline,  // unquantized
  ptq,       // PTQ of the baseline
};

struct EvalResult {
  EvalRole role = EvalRole::model;
  std::string model{};    // as given on the command line
  std::string adapter{};  // may be empty
  std::string recipe{};   // recipe of the layers; empty: none
  Json convention{};      // scoring convention of texts; null without texts
  std::optional<PerplexityReport> perplexity{};
  std::vector<std::pair<std::string_view, ChoiceReport>> tasks{};  // by task name
};

// One metric: "word_perplexity", "hellaswag.acc_norm".
struct EvalFigure {
  std::string name;
  double value = 0;  // NaN: unknown
};
[[nodiscard]] std::vector<EvalFigure> figures_of(const EvalResult& result);

// Recovered fraction of the PTQ loss per metric: (model - ptq) / (baseline - ptq). NaN if a metric is unknown or the
// PTQ loss is below 0.1% of it.
[[nodiscard]] std::vector<EvalFigure> recovery(const EvalResult& model, const EvalResult& baseline,
                                               const EvalResult& ptq);

// Prints a single result.
void print_result(const EvalResult& result);
// Prints one column per result. With a baseline and a ptq result: recovery per metric, if defined.
void print_comparison(const std::vector<EvalResult>& results);
// JSON object for one result, else an array.
[[nodiscard]] Json eval_json(const std::vector<EvalResult>& results);

}  // namespace quench
