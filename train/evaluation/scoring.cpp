#include "train/evaluation/scoring.h"

#include <algorithm>

#include "core/ops/cross_entropy.h"

namespace quench {
namespace {

// Scores windows [first, last) in one forward pass.
void score_pass(const nn::CausalLm& model, std::span<const ScoringWindow> windows, std::span<double> results) {
  std::vector<std::int32_t> inputs, targets;
  std::vector<SequenceRange> sequences;
  for (const ScoringWindow& w : windows) {
    QUENCH_CHECK(w.inputs.size() == w.targets.size() && !w.inputs.empty(), "score_windows: {} inputs, {} targets",
                 w.inputs.size(), w.targets.size());
    const auto begin = static_cast<std::int64_t>(inputs.size()), length = static_cast<std::int64_t>(w.inputs.size());
    sequences.push_back({begin, length, begin, length});
    inputs.insert(inputs.end(), w.inputs.begin(), w.inputs.end());
    targets.insert(targets.end(), w.targets.begin(), w.targets.end());
  }
  const auto tokens = static_cast<std::int64_t>(inputs.size());
  const Device device = model.options().device;
  const nn::ForwardContext context = model.make_context(sequences, tokens);
  Tensor losses;
  (void)model.loss(Tensor::from_values<std::int32_t>({tokens}, inputs).to(device),
                   Tensor::from_values<std::int32_t>({tokens}, targets).to(device), context, 1.0f, {}, &losses);
  const Tensor host = losses.to(Device{});
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const float* loss = host.data<float>() + sequences[i].q_begin;
    double sum = 0;
    for (std::int64_t t = 0; t < sequences[i].q_length; ++t) sum += static_cast<double>(loss[t]);
    results[i] = sum;
  }
}

}  // namespace

std::vector<double> score_windows(const nn::CausalLm& model, std::span<const ScoringWindow> windows,
                                  std::int64_t tokens_per_pass) {
  const autograd::NoGrad no_grad;
  std::vector<double> results(windows.size());
  std::size_t first = 0;
  while (first < windows.size()) {
    std::size_t last = first;
    std::int64_t tokens = 0;
    do {
      tokens += static_cast<std::int64_t>(windows[last++].inputs.size());
    } while (last < windows.size() &&
             tokens + static_cast<std::int64_t>(windows[last].inputs.size()) <= tokens_per_pass);
    score_pass(model, windows.subspan(first, last - first), std::span(results).subspan(first, last - first));
    first = last;
  }
  return results;
}

std::vector<ScoringWindow> rolling_windows(std::span<const std::int32_t> tokens, std::int32_t prefix,
                                           std::int64_t window) {
  QUENCH_CHECK(window > 0, "rolling_windows: window of {} tokens", window);
  std::vector<ScoringWindow> windows;
  const auto step = static_cast<std::size_t>(window);
  for (std::size_t begin = 0; begin < tokens.size(); begin += step) {
    const std::size_t end = std::min(tokens.size(), begin + step);
    ScoringWindow w;
    w.inputs.push_back(begin == 0 ? prefix : tokens[begin - 1]);
    w.inputs.insert(w.inputs.end(), tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                    tokens.begin() + static_cast<std::ptrdiff_t>(end - 1));
    w.targets.assign(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                     tokens.begin() + static_cast<std::ptrdiff_t>(end));
    windows.push_back(std::move(w));
  }
  return windows;
}

}  // namespace quench
