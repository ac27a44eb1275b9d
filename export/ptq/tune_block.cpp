#include "export/ptq/tune_block.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "core/number/random.h"
#include "core/ops/elementwise.h"
#include "core/ops/global_norm.h"
#include "core/system/log.h"
#include "export/methods/tuned_weight.h"

namespace quench {
namespace {

constexpr std::uint64_t kSeed = 42;

// Leaves of the tape during the tuning; without gradients that a trainer waits for.
class TunedParameters {
 public:
  explicit TunedParameters(std::span<const BlockWeight> weights) {
    for (const BlockWeight& one : weights) {
      nn::Parameter& parameter = *one.layer->tensor->parameter;
      if (before_.contains(&parameter)) continue;
      before_.emplace(&parameter, parameter.variable);
      parameter.variable = nn::Variable::leaf(parameter.variable.value().clone(), DType::f32);
    }
  }
  ~TunedParameters() {
    for (auto& [parameter, variable] : before_) {
      parameter->variable = variable;
      parameter->mark_changed();
    }
  }
  TunedParameters(const TunedParameters&) = delete;
  TunedParameters& operator=(const TunedParameters&) = delete;

  void reset_gradients() {
    for (auto& [parameter, variable] : before_) {
      parameter->variable.gradient()->reset();
      parameter->mark_changed();
    }
  }

 private:
  std::map<nn::Parameter*, nn::Variable> before_;
};

class BlockTuner {
 public:
  BlockTuner(const LayerWalk& walk, std::span<const BlockWeight> weights, const QuantizationRules& rules,
             std::uint64_t number)
      : walk_(walk), weights_(weights), options_(rules.options), number_(number) {
    for (const BlockWeight& one : weights)
      tuned_.emplace_back(weight_of(*one.layer, rules), one.layer->choice.scheme->weights, one.layer->tensor->name,
                          rules.scale_dtype, one.layer->shared_amax, one.importance,
                          one.layer->tensor->parameter->variable.value().device());
  }

  void run() {
    TunedParameters parameters(weights_);
    write_values();
    start_ = losses();
    const auto iterations = options_.iterations;
    const double start = std::accumulate(start_.begin(), start_.end(), 0.0);
    double least = 1;
    bool better = false;
    for (std::int64_t i = 0; i < iterations; ++i) {
      const std::vector<std::int64_t> sequences = batch_of(i);
      parameters.reset_gradients();
      const double loss = relative_loss(sequences);
      if (loss < least) {
        least = loss;
        better = true;
        for (TunedWeight& one : tuned_) one.keep();
      }
      const double rate = static_cast<double>(iterations - i) / static_cast<double>(iterations * iterations);
      for (std::size_t w = 0; w < tuned_.size(); ++w) tuned_[w].step(gradient_of(w), static_cast<float>(rate));
      write_values();
    }
    finish(start, better);
  }

 private:
  [[nodiscard]] Tensor rows_of(const BlockWeight& one, const Tensor& whole) const {
    return whole.narrow(0, one.layer->tensor->piece->row_begin, one.layer->tensor->piece->rows);
  }

  void write_values() {
    for (std::size_t w = 0; w < tuned_.size(); ++w) {
      nn::Parameter& parameter = *weights_[w].layer->tensor->parameter;
      tuned_[w].write_values(rows_of(weights_[w], parameter.variable.value()), 1 / weights_[w].layer->tensor->factor);
      parameter.mark_changed();
    }
  }

  [[nodiscard]] Tensor gradient_of(std::size_t w) const {
    const Tensor whole = weights_[w].layer->tensor->parameter->variable.grad();
    QUENCH_CHECK(whole.defined(), "{}: no gradient", weights_[w].layer->tensor->name);
    const Tensor gradient = rows_of(weights_[w], whole);
    return weights_[w].layer->tensor->factor < 0 ? negated(gradient) : gradient;
  }
  static Tensor negated(const Tensor& values) {
    const Tensor out = values.clone();
    scale({out, -1.0f});
    return out;
  }

  // output - target, in f32, and its squared norm.
  [[nodiscard]] std::pair<Tensor, double> difference(const Tensor& output, const Tensor& target) const {
    Tensor out = Tensor::empty(output.shape(), DType::f32, output.device());
    if (output.dtype() == DType::f32)
      out.copy_from(output);
    else
      cast({output, out});
    accumulate({target, out, -1.0f});
    const Tensor sum = Tensor::empty({1}, DType::f64, out.device());
    squared_norm({std::array{out}, sum});
    const double loss = sum.to(Device{}).data<double>()[0];
    QUENCH_CHECK_AS(ErrorCode::nonfinite, std::isfinite(loss),
                    "the outputs of the decoder layer of {} are not finite on the calibration data",
                    weights_.front().layer->tensor->name);
    return {out, loss};
  }

  // By sequence, without gradients.
  [[nodiscard]] std::vector<double> losses() const {
    const autograd::NoGrad no_grad;
    const MemoryScope scope(MemoryCategory::activations);
    std::vector<double> all;
    for (std::int64_t i = 0; i < walk_.sequences(); ++i) {
      const LayerWalk::Batch batch = walk_.batch(std::array{i});
      all.push_back(difference(walk_.forward(batch).value(), batch.targets).second);
    }
    return all;
  }

  // Loss as a share of that of these sequences at the start; fills the gradients of the weights.
  [[nodiscard]] double relative_loss(std::span<const std::int64_t> sequences) const {
    const MemoryScope scope(MemoryCategory::activations);
    const LayerWalk::Batch batch = walk_.batch(sequences);
    autograd::Tape tape;
    autograd::Variable y;
    {
      const autograd::TapeScope tape_scope(tape);
      y = walk_.forward(batch);
    }
    auto [gradient, loss] = difference(y.value(), batch.targets);
    if (y.dtype() != DType::f32) {
      const Tensor narrow = Tensor::empty(gradient.shape(), y.dtype(), gradient.device());
      cast({gradient, narrow});
      gradient = narrow;
    }
    y.gradient()->contribute(autograd::FusedValue(gradient));
    tape.backward();
    double start = 0;
    for (const std::int64_t sequence : sequences) start += start_[static_cast<std::size_t>(sequence)];
    return start > 0 ? loss / start : 1.0;
  }

  // Each epoch has an order of its own.
  [[nodiscard]] std::vector<std::int64_t> batch_of(std::int64_t iteration) const {
    const std::int64_t count = walk_.sequences(), size = std::min(options_.batch_size, count), per_epoch = count / size;
    std::vector<std::int64_t> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    const RandomKey key{kSeed, number_, static_cast<std::uint64_t>(iteration / per_epoch)};
    std::ranges::stable_sort(order, {},
                             [&](std::int64_t i) { return random_word(key, static_cast<std::uint64_t>(i)); });
    const auto first = order.begin() + iteration % per_epoch * size;
    return {first, first + size};
  }

  [[nodiscard]] double loss_of_all() const {
    const std::vector<double> all = losses();
    return std::accumulate(all.begin(), all.end(), 0.0);
  }

  // The least loss on all sequences: start, last step or kept step. Batches mislead where few tokens dominate the loss.
  void finish(double start, bool better) {
    double least = start;
    const auto take = [&](double loss) {
      if (!(loss < least)) return;
      least = loss;
      for (std::size_t w = 0; w < tuned_.size(); ++w)
        weights_[w].layer->tuned = std::make_shared<QuantizedWeight>(tuned_[w].quantized());
    };
    take(loss_of_all());
    if (better) {
      for (TunedWeight& one : tuned_) one.restore();
      write_values();
      take(loss_of_all());
    }
    QUENCH_LOG_DEBUG("decoder layer {}: squared error {:.5g} of the tuned layer, {:.5g} before", number_, least, start);
  }

  const LayerWalk& walk_;
  std::span<const BlockWeight> weights_;
  const MethodOptions& options_;
  std::uint64_t number_;
  std::vector<TunedWeight> tuned_;
  std::vector<double> start_;  // losses by sequence
};

}  // namespace

void tune_block(const LayerWalk& walk, std::span<const BlockWeight> weights, const QuantizationRules& rules,
                std::uint64_t number) {
  if (!weights.empty()) BlockTuner(walk, weights, rules, number).run();
}

}  // namespace quench
