#include "train/evaluation/scoring.h"

#include <algorithm>
#include <cmath>

#include "core/ops/loss/cross_entropy.h"

namespace quench {
namespace {

// Predicts tokens[begin, end); targets before `scored` are context.
ScoringWindow window_of(std::span<const std::int32_t> tokens, std::int64_t begin, std::int64_t end,
                        std::int64_t scored) {
  ScoringWindow w;
  w.inputs.assign(tokens.begin() + (begin - 1), tokens.begin() + (end - 1));
  w.targets.assign(tokens.begin() + begin, tokens.begin() + end);
  std::fill_n(w.targets.begin(), std::max<std::int64_t>(0, scored - begin), kIgnoreLabel);
  w.first_target = begin;
  return w;
}

}  // namespace

void rolling_windows(std::span<const std::int32_t> tokens, std::int32_t prefix, std::int64_t window,
                     const WindowSink& sink) {
  QUENCH_CHECK(window > 0, "rolling_windows: window of {} tokens", window);
  const auto size = static_cast<std::int64_t>(tokens.size());
  if (size == 0) return;
  const std::int64_t first = std::min(size, window);
  ScoringWindow w;
  w.inputs.push_back(prefix);
  w.inputs.insert(w.inputs.end(), tokens.begin(), tokens.begin() + (first - 1));
  w.targets.assign(tokens.begin(), tokens.begin() + first);
  sink(std::move(w));
  for (std::int64_t scored = first; scored < size;) {
    const std::int64_t end = std::min(size, scored + window);
    sink(window_of(tokens, end - window, end, scored));
    scored = end;
  }
}

void strided_windows(std::span<const std::int32_t> tokens, std::int64_t window, std::int64_t stride,
                     const WindowSink& sink) {
  QUENCH_CHECK(stride >= 1 && stride <= window, "strided_windows: stride {} for windows of {} tokens", stride, window);
  const auto size = static_cast<std::int64_t>(tokens.size());
  std::int64_t seen = 0;
  for (std::int64_t begin = 0; seen < size; begin += stride) {
    const std::int64_t end = std::min(size, begin + window);
    if (end - begin > 1) sink(window_of(tokens, begin + 1, end, seen));
    seen = end;
  }
}

void WindowScorer::add(ScoringWindow window, std::int64_t document) {
  QUENCH_CHECK(window.inputs.size() == window.targets.size() && !window.inputs.empty(),
               "WindowScorer: {} inputs, {} targets", window.inputs.size(), window.targets.size());
  const auto tokens = static_cast<std::int64_t>(window.inputs.size());
  const auto scored = std::ranges::count_if(window.targets, [](std::int32_t t) { return t != kIgnoreLabel; });
  if (scored == 0) return;
  if (waiting_tokens_ + tokens > tokens_per_pass_) score_pass();
  targets_ += scored;
  waiting_tokens_ += tokens;
  waiting_.push_back({std::move(window), document});
}

double WindowScorer::finish() {
  score_pass();
  return nll_;
}

void WindowScorer::score_pass() {
  if (waiting_.empty()) return;
  const autograd::NoGrad no_grad;
  std::vector<std::int32_t> inputs, targets;
  std::vector<SequenceRange> sequences;
  for (const Waiting& w : waiting_) {
    const auto begin = static_cast<std::int64_t>(inputs.size());
    const auto length = static_cast<std::int64_t>(w.window.inputs.size());
    sequences.push_back({begin, length, begin, length});
    inputs.insert(inputs.end(), w.window.inputs.begin(), w.window.inputs.end());
    targets.insert(targets.end(), w.window.targets.begin(), w.window.targets.end());
  }
  const Device device = model_.options().device;
  nn::ForwardContext context = model_.make_context(sequences, waiting_tokens_);
  if (model_.kv_cache().format != nullptr) {
    if (!cache_ || cache_->capacity() < waiting_tokens_) cache_.emplace(model_.make_cache(waiting_tokens_));
    context.cache = &*cache_;
  }
  const Tensor ids = Tensor::from_values<std::int32_t>({waiting_tokens_}, inputs).to(device),
               labels = Tensor::from_values<std::int32_t>({waiting_tokens_}, targets).to(device);
  const autograd::Variable hidden = model_.hidden(ids, context);
  Tensor losses;
  (void)model_.head_loss(hidden, labels, 1.0f, {}, &losses);
  const Tensor host = losses.to(Device{});
  for (std::size_t i = 0; i < waiting_.size(); ++i) {
    const float* loss = host.data<float>() + sequences[i].q_begin;
    double nll = 0;
    for (std::int64_t t = 0; t < sequences[i].q_length; ++t) {
      QUENCH_CHECK_AS(ErrorCode::nonfinite, std::isfinite(loss[t]),
                      "{} {}: the model's logits for token {} are not finite: its weights have NaN or infinity, or its "
                      "activations overflow",
                      unit_, waiting_[i].document, waiting_[i].window.first_target + t);
      nll += static_cast<double>(loss[t]);
    }
    nll_ += nll;
    if (sink_) sink_(waiting_[i].document, nll);
  }
  if (pass_sink_) pass_sink_({model_, ids, labels, targets, sequences, hidden});
  waiting_.clear();
  waiting_tokens_ = 0;
}

}  // namespace quench
