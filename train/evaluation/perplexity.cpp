#include "train/evaluation/perplexity.h"

#include <cmath>
#include <numbers>

#include "core/ops/cross_entropy.h"
#include "train/evaluation/scoring.h"

namespace quench {
namespace {

double per(double nll, std::int64_t count) {
  return count > 0 ? nll / static_cast<double>(count) : 0.0;
}

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

}  // namespace

double PerplexityReport::loss() const {
  return per(nll, tokens);
}
double PerplexityReport::token_perplexity() const {
  return std::exp(per(nll, tokens));
}
double PerplexityReport::word_perplexity() const {
  return std::exp(per(nll, words));
}
double PerplexityReport::byte_perplexity() const {
  return std::exp(per(nll, bytes));
}
double PerplexityReport::bits_per_byte() const {
  return per(nll, bytes) / std::numbers::ln2;
}

std::int64_t count_words(std::string_view text) {
  std::int64_t pieces = 1;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (is_space(text[i]) && (i == 0 || !is_space(text[i - 1]))) ++pieces;
  return pieces;
}

PerplexityReport perplexity(const nn::CausalLm& model, const Tokenizer& tokenizer,
                            std::span<const std::string> documents, std::int64_t window) {
  PerplexityReport report;
  std::vector<ScoringWindow> windows;
  for (const std::string& document : documents) {
    const std::vector<std::int32_t> tokens = tokenizer.encode(document, {.add_special_tokens = false});
    ++report.documents;
    report.bytes += static_cast<std::int64_t>(document.size());
    report.words += count_words(document);
    if (tokens.empty()) continue;
    const auto prefix = tokenizer.bos_id() ? tokenizer.bos_id() : tokenizer.eos_id();
    std::vector<ScoringWindow> rolling = rolling_windows(tokens, prefix.value_or(tokens.front()), window);
    if (!prefix) rolling.front().targets.front() = kIgnoreLabel;
    report.tokens += static_cast<std::int64_t>(tokens.size()) - (prefix ? 0 : 1);
    for (auto& w : rolling) windows.push_back(std::move(w));
  }
  for (const double nll : score_windows(model, windows)) report.nll += nll;
  return report;
}

}  // namespace quench
