#pragma once
// What `quench eval` has measured of models, one or several side by side, as text and as JSON.

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

// What a model is in a comparison.
enum class EvalRole : std::uint8_t {
  model,
  baseline,  // in full precision
  ptq,       // the baseline, quantized after its training
};

struct EvalResult {
  EvalRole role = EvalRole::model;
  std::string model{};    // as given
  std::string adapter{};  // over it; may be empty
  std::string recipe{};   // that its layers ran; empty: none
  Json convention{};      // how texts were scored; null without texts
  std::optional<PerplexityReport> perplexity{};
  std::vector<std::pair<std::string_view, ChoiceReport>> tasks{};  // by name
};

// One figure of a result: "word_perplexity", "hellaswag.acc_norm".
struct EvalFigure {
  std::string name;
  double value = 0;  // NaN: not known
};
[[nodiscard]] std::vector<EvalFigure> figures_of(const EvalResult& result);

// What of the loss through quantization after training a model has recovered, figure by figure:
// (model - ptq) / (baseline - ptq). NaN where a figure is not known and where quantization has cost less than 0.1% of
// it.
[[nodiscard]] std::vector<EvalFigure> recovery(const EvalResult& model, const EvalResult& baseline,
                                               const EvalResult& ptq);

// A result of its own.
void print_result(const EvalResult& result);
// A column for each result; below each figure of a model, with a baseline and a ptq among the results, what it has
// recovered, where that means something.
void print_comparison(const std::vector<EvalResult>& results);
// An object for one result, else an array.
[[nodiscard]] Json eval_json(const std::vector<EvalResult>& results);

}  // namespace quench
