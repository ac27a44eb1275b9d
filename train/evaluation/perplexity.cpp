#include "train/evaluation/perplexity.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/ops/loss/cross_entropy.h"
#include "data/tokenizer/text/code_points.h"
#include "data/tokenizer/text/unicode.h"

namespace quench {
namespace {

double per(double nll, std::int64_t count) {
  return count > 0 ? nll / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
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
  bool after_space = false;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_sequence_length(text, i);
    const bool space = length > 0 && is_python_space(decode_code_point(text, i));
    if (space && !after_space) ++pieces;
    after_space = space;
    i += std::max<std::size_t>(length, 1);
  }
  return pieces;
}

void PerplexityMeter::add(const ScoredDocument& document) {
  const std::int64_t number = report_.documents++;
  if (document.text) {
    report_.bytes += static_cast<std::int64_t>(document.text->size());
    report_.words += count_words(*document.text);
  } else {
    text_known_ = false;
  }
  std::span<const std::int32_t> tokens = document.tokens;
  std::span<const std::uint8_t> targets = document.targets;
  QUENCH_CHECK(targets.empty() || targets.size() == tokens.size(), "PerplexityMeter: {} tokens, {} targets",
               tokens.size(), targets.size());
  if (tokens.empty()) return;
  std::int64_t skipped = 0;  // tokens before the windows' tokens
  const auto score = [&](ScoringWindow window) {
    if (!targets.empty())
      for (std::size_t i = 0; i < window.targets.size(); ++i)
        if (targets[static_cast<std::size_t>(window.first_target) + i] == 0) window.targets[i] = kIgnoreLabel;
    window.first_target += skipped;
    scorer_.add(std::move(window), number);
  };
  if (options_.stride > 0) return strided_windows(tokens, options_.window, options_.stride, score);
  std::int32_t prefix = options_.prefix.value_or(tokens.front());
  if (!options_.prefix) {
    tokens = tokens.subspan(1);
    if (!targets.empty()) targets = targets.subspan(1);
    skipped = 1;
  }
  rolling_windows(tokens, prefix, options_.window, score);
}

PerplexityReport PerplexityMeter::finish() {
  report_.nll = scorer_.finish();
  report_.tokens = scorer_.targets();
  if (!text_known_) report_.words = report_.bytes = 0;
  QUENCH_CHECK_AS(ErrorCode::bad_config, report_.tokens > 0, "the data hold no token to score ({} documents)",
                  report_.documents);
  return report_;
}

}  // namespace quench
