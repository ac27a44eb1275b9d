#include "apps/eval_results.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace quench {
namespace {

// Minimum relative PTQ loss of a metric for a recovery value: below it, seeds differ as much.
constexpr double kLeastLoss = 1e-3;

constexpr std::string_view kSameTop = "same_top";

bool larger_is_better(std::string_view figure) {
  return figure.ends_with(".acc") || figure.ends_with(".acc_norm") || figure == kSameTop;
}

std::string_view role_name(EvalRole role) {
  switch (role) {
    case EvalRole::baseline: return "baseline";
    case EvalRole::ptq: return "ptq";
    case EvalRole::model: return "model";
  }
  return "";
}

std::string count(std::int64_t value, const char* what) {
  return value > 0 ? fmt::format(", {} {}", value, what) : "";
}

void print_perplexity(const PerplexityReport& r) {
  std::printf("%s\n", fmt::format("{} documents, {} tokens{}{}", r.documents, r.tokens, count(r.words, "words"),
                                  count(r.bytes, "bytes"))
                          .c_str());
  std::printf("loss              %.4f nats per token\ntoken perplexity  %.4f\n", r.loss(), r.token_perplexity());
  if (r.bytes == 0)
    std::printf("word and byte perplexity: n/a, the text of some documents is not known\n");
  else
    std::printf("word perplexity   %.4f\nbyte perplexity   %.4f\nbits per byte     %.4f\n", r.word_perplexity(),
                r.byte_perplexity(), r.bits_per_byte());
}

// "0.4125 +- 0.0049"
std::string error_bar(double value, double error, int digits = 4) {
  return std::isnan(error) ? fmt::format("{:.{}f}", value, digits)
                           : fmt::format("{:.{}f} +- {:.{}f}", value, digits, error, digits);
}

void print_divergence(const DivergenceReport& r, const std::string& reference) {
  std::printf("%s\n",
              fmt::format("divergence        {} nats per token from {} (median {:.6f}, 99% {:.6f}, largest {:.4f})\n"
                          "same top token    {}",
                          error_bar(r.mean, r.mean_error, 6), reference, r.median, r.percentile_99, r.largest,
                          error_bar(r.same_top, r.same_top_error))
                  .c_str());
}

const EvalResult* find_role(const std::vector<EvalResult>& results, EvalRole role) {
  const auto found = std::ranges::find(results, role, &EvalResult::role);
  return found == results.end() ? nullptr : &*found;
}

// Null unless both baseline and ptq are present.
const EvalResult* ptq_beside_baseline(const std::vector<EvalResult>& results) {
  return find_role(results, EvalRole::baseline) != nullptr ? find_role(results, EvalRole::ptq) : nullptr;
}

Json figures_json(const std::vector<EvalFigure>& figures) {
  Json json = Json::object();
  for (const EvalFigure& figure : figures) json.set(figure.name, figure.value);
  return json;
}

void add_perplexity(Json& json, const PerplexityReport& r) {
  json.set("documents", r.documents);
  json.set("tokens", r.tokens);
  json.set("words", r.words > 0 ? Json(r.words) : Json());
  json.set("bytes", r.bytes > 0 ? Json(r.bytes) : Json());
  json.set("loss", r.loss());
  json.set("token_perplexity", r.token_perplexity());
  json.set("word_perplexity", r.word_perplexity());
  json.set("byte_perplexity", r.byte_perplexity());
  json.set("bits_per_byte", r.bits_per_byte());
}

Json divergence_json(const DivergenceReport& r, const std::string& reference) {
  return Json::Object{{"reference", reference},
                      {"tokens", r.tokens},
                      {"mean", r.mean},
                      {"stderr", r.mean_error},
                      {"median", r.median},
                      {"percentile_99", r.percentile_99},
                      {"largest", r.largest},
                      {std::string(kSameTop), r.same_top},
                      {"same_top_stderr", r.same_top_error}};
}

Json result_json(const EvalResult& result) {
  Json json = result.convention.is_object() ? result.convention : Json::object();
  if (result.perplexity) add_perplexity(json, *result.perplexity);
  if (result.divergence) json.set("divergence", divergence_json(*result.divergence, result.reference));
  if (!result.tasks.empty()) {
    Json tasks = Json::object();
    for (const auto& [name, r] : result.tasks)
      tasks.set(name, Json::Object{{"items", r.items},
                                   {"acc", r.accuracy},
                                   {"acc_stderr", r.accuracy_error},
                                   {"acc_norm", r.normalized},
                                   {"acc_norm_stderr", r.normalized_error}});
    json.set("tasks", std::move(tasks));
  }
  if (!result.recipe.empty()) json.set("recipe", result.recipe);
  if (!result.adapter.empty()) json.set("adapter", result.adapter);
  return json;
}

}  // namespace

std::vector<EvalFigure> figures_of(const EvalResult& result) {
  std::vector<EvalFigure> figures;
  if (result.perplexity) {
    figures.push_back({"token_perplexity", result.perplexity->token_perplexity()});
    figures.push_back({"word_perplexity", result.perplexity->word_perplexity()});
    figures.push_back({"byte_perplexity", result.perplexity->byte_perplexity()});
  }
  if (result.divergence) {
    figures.push_back({"divergence", result.divergence->mean});
    figures.push_back({std::string(kSameTop), result.divergence->same_top});
  }
  for (const auto& [name, report] : result.tasks) {
    figures.push_back({fmt::format("{}.acc", name), report.accuracy});
    figures.push_back({fmt::format("{}.acc_norm", name), report.normalized});
  }
  return figures;
}

std::vector<EvalFigure> recovery(const EvalResult& model, const EvalResult& baseline, const EvalResult& ptq) {
  std::vector<EvalFigure> figures = figures_of(model);
  const std::vector<EvalFigure> full = figures_of(baseline), quantized = figures_of(ptq);
  QUENCH_CHECK(full.size() == figures.size() && quantized.size() == figures.size(), "recovery: {}, {} and {} figures",
               figures.size(), full.size(), quantized.size());
  for (std::size_t i = 0; i < figures.size(); ++i) {
    const double change = quantized[i].value - full[i].value;
    const double loss = (larger_is_better(figures[i].name) ? -change : change) / std::abs(full[i].value);
    figures[i].value = loss >= kLeastLoss ? (quantized[i].value - figures[i].value) / change : std::nan("");
  }
  return figures;
}

void print_result(const EvalResult& result) {
  if (result.perplexity) print_perplexity(*result.perplexity);
  if (result.divergence) print_divergence(*result.divergence, result.reference);
  for (const auto& [name, r] : result.tasks)
    std::printf("%s\n",
                fmt::format("{:<17} acc {}, acc_norm {}, {} items", name, error_bar(r.accuracy, r.accuracy_error),
                            error_bar(r.normalized, r.normalized_error), r.items)
                    .c_str());
}

void print_comparison(const std::vector<EvalResult>& results) {
  const EvalResult* const ptq = ptq_beside_baseline(results);
  const EvalResult* const baseline = find_role(results, EvalRole::baseline);
  std::vector<std::vector<std::string>> columns{{"", ""}};
  std::vector<bool> has_recovery;  // by metric
  if (ptq != nullptr)
    for (const EvalFigure& figure : recovery(*baseline, *baseline, *ptq))
      has_recovery.push_back(!std::isnan(figure.value));
  else
    has_recovery.resize(figures_of(results.front()).size());
  for (std::size_t i = 0; i < has_recovery.size(); ++i) {
    columns.front().push_back(figures_of(results.front())[i].name);
    if (has_recovery[i]) columns.front().emplace_back("  recovered");
  }
  for (const EvalResult& result : results) {
    const std::string what = result.recipe.empty() ? result.model : fmt::format("{}, {}", result.model, result.recipe);
    std::vector<std::string> column{std::string(role_name(result.role)),
                                    result.adapter.empty() ? what : fmt::format("{} + {}", what, result.adapter)};
    const std::vector<EvalFigure> figures = figures_of(result);
    const std::vector<EvalFigure> recovered =
        ptq != nullptr && result.role == EvalRole::model ? recovery(result, *baseline, *ptq) : figures;
    for (std::size_t i = 0; i < figures.size(); ++i) {
      const auto known = [](double value, std::string text) { return std::isnan(value) ? "n/a" : std::move(text); };
      column.push_back(known(figures[i].value, fmt::format("{:.4f}", figures[i].value)));
      if (!has_recovery[i]) continue;
      column.push_back(result.role != EvalRole::model
                           ? ""
                           : known(recovered[i].value, fmt::format("{:.1f}%", 100 * recovered[i].value + 0.0)));
    }
    columns.push_back(std::move(column));
  }
  for (std::size_t row = 0; row < columns.front().size(); ++row) {
    std::string line;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      std::size_t width = 0;
      for (const std::string& cell : columns[c]) width = std::max(width, cell.size());
      line += c == 0 ? fmt::format("{:<{}}", columns[c][row], width) : fmt::format("  {:>{}}", columns[c][row], width);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    std::printf("%s\n", line.c_str());
  }
}

Json eval_json(const std::vector<EvalResult>& results) {
  if (results.size() == 1) return result_json(results.front());
  const EvalResult* const ptq = ptq_beside_baseline(results);
  Json list = Json::array();
  for (const EvalResult& result : results) {
    Json json = result_json(result);
    json.set("model", result.model);
    json.set("role", role_name(result.role));
    if (ptq != nullptr && result.role == EvalRole::model)
      json.set("recovery", figures_json(recovery(result, *find_role(results, EvalRole::baseline), *ptq)));
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace quench
