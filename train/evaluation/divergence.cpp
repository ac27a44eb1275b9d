#include "train/evaluation/divergence.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/ops/argmax.h"
#include "core/ops/loss/cross_entropy.h"
#include "core/ops/loss/distillation_loss.h"

namespace quench {
namespace {

// Standard error of a mean of `count` values with this sum of squared deviations.
double standard_error(double squares, std::int64_t count) {
  const auto n = static_cast<double>(count);
  return count > 1 ? std::sqrt(squares / (n - 1) / n) : std::numeric_limits<double>::quiet_NaN();
}

Tensor likeliest(const Tensor& logits) {
  Tensor index = Tensor::empty({logits.size(0)}, DType::i32, logits.device());
  argmax({.x = logits, .index = index});
  return index.to(Device{});
}

// KL divergences of rows of logits, on the CPU.
Tensor divergences(const Tensor& logits, const Tensor& reference, const Tensor& labels) {
  const Shape rows{logits.size(0)};
  const Device device = logits.device();
  const Tensor losses = Tensor::empty(rows, DType::f32, device), entropies = Tensor::empty(rows, DType::f32, device),
               result = Tensor::empty(rows, DType::f32, device);
  distillation_loss({.logits = logits,
                     .target = {.logits = reference},
                     .labels = labels,
                     .losses = losses,
                     .cross_entropies = entropies,
                     .divergences = result});
  return result.to(Device{});
}

}  // namespace

void DivergenceMeter::add(const ScoredPass& pass) {
  const autograd::NoGrad no_grad;
  const std::int64_t vocab = pass.model.config().vocab_size, tokens = pass.hidden.value().size(0);
  QUENCH_CHECK_AS(ErrorCode::bad_config, reference_.config().vocab_size == vocab,
                  "the reference model has {} tokens in its vocabulary, the evaluated one {}: distributions over one "
                  "vocabulary are compared",
                  reference_.config().vocab_size, vocab);
  const autograd::Variable expected =
      reference_.hidden(pass.ids, reference_.make_context({pass.sequences.begin(), pass.sequences.end()}, tokens));
  const std::int64_t rows_at_once =
      std::max<std::int64_t>(1, logits_bytes_ / (2 * vocab * static_cast<std::int64_t>(sizeof(float))));
  for (std::int64_t begin = 0; begin < tokens; begin += rows_at_once) {
    const std::int64_t rows = std::min(rows_at_once, tokens - begin);
    const Tensor logits = pass.model.logits(autograd::Variable(pass.hidden.value().narrow(0, begin, rows)));
    const Tensor reference = reference_.logits(autograd::Variable(expected.value().narrow(0, begin, rows)));
    const Tensor own_top = likeliest(logits), reference_top = likeliest(reference);
    const Tensor values = divergences(logits, reference, pass.labels.narrow(0, begin, rows));
    for (std::int64_t row = 0; row < rows; ++row) {
      if (pass.targets[static_cast<std::size_t>(begin + row)] == kIgnoreLabel) continue;
      const float value = values.data<float>()[row];
      QUENCH_CHECK_AS(ErrorCode::nonfinite, std::isfinite(value),
                      "the divergence from the reference model is not finite: logits of one of the models have NaN or "
                      "infinity");
      divergences_.push_back(value);
      if (own_top.data<std::int32_t>()[row] == reference_top.data<std::int32_t>()[row]) ++same_;
    }
  }
}

DivergenceReport DivergenceMeter::finish() const {
  DivergenceReport report{.tokens = std::ssize(divergences_)};
  QUENCH_CHECK_AS(ErrorCode::bad_config, report.tokens > 0, "no token to compare with the reference model");
  const auto count = static_cast<double>(report.tokens);
  for (const float value : divergences_) report.mean += static_cast<double>(value) / count;
  double squares = 0;
  for (const float value : divergences_) squares += std::pow(static_cast<double>(value) - report.mean, 2);
  report.mean_error = standard_error(squares, report.tokens);
  report.same_top = static_cast<double>(same_) / count;
  report.same_top_error = standard_error(count * report.same_top * (1 - report.same_top), report.tokens);
  std::vector<float> sorted = divergences_;
  std::ranges::sort(sorted);
  const auto rank = [&](double share) {
    return static_cast<double>(sorted[static_cast<std::size_t>(std::ceil(share * count)) - 1]);
  };
  report.median = rank(0.5);
  report.percentile_99 = rank(0.99);
  report.largest = static_cast<double>(sorted.back());
  return report;
}

}  // namespace quench
