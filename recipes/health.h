#pragma once
// What quantization loses in every operand of every converted layer, measured in the steps that ask for it.
//
// A run owns one recorder and hands it to its kernels (RecipeOptions::health). Armed for a step, kernels send the
// operands that they have quantized anyway through quant_error, whose result stays on the device: nothing waits, and
// nothing that the step computes changes. Measured is the form that the first product of an operand reads: x and W as
// in the forward product, dy as in dgrad (the forms for other products hold the same values under scales of their own);
// an operand whose first product is in high precision is not. The first use of an operand in a step counts: further
// micro-batches, a forward pass that runs again for the backward pass and further chunks of a head are left out.

#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/ops/quantize/quant_error.h"

namespace quench::recipes {

enum class LayerOperand { input, weight, output_gradient };
inline constexpr int kLayerOperandCount = 3;

// "input", "weight", "output_gradient"
[[nodiscard]] std::string_view to_string(LayerOperand operand) noexcept;

struct OperandHealth {
  std::string layer;  // module path
  LayerOperand operand = LayerOperand::input;
  ElementFormat format = ElementFormat::e4m3;
  std::int64_t elements = 0;
  bool stochastic = false;  // how they were rounded
  std::int64_t order = 0;   // 0: measured first in its step
  QuantError error;

  [[nodiscard]] bool finite() const noexcept { return std::isfinite(error.most); }
  // Of the elements: 0 .. 1.
  [[nodiscard]] double saturated_share() const noexcept { return share(error.saturated); }
  [[nodiscard]] double underflow_share() const noexcept { return share(error.underflows); }

 private:
  [[nodiscard]] double share(double count) const noexcept {
    return elements > 0 ? count / static_cast<double>(elements) : 0;
  }
};

// The signal to noise ratio, in decibels, of rounding to nearest while every value is a normal number of the format:
// an error spread evenly over the step 2^-m of a significand with m bits has the variance 4^-m / 12, and significands
// spread evenly in the logarithm over [1,2) have the mean square 3 / (2 ln 2), together 10 log10(18 / ln 2 * 4^m).
// 32.2 for e4m3 and 26.2 for e5m2 (normally distributed values: 31.5 and 25.5); significands near 1 lose 3.3 more,
// those near 2 lose 2.7 less. Stochastic rounding, whose error has the variance f (1 - f) of a step at the distance f,
// 4^-m / 6 in the mean, has twice the noise: 3 less.
[[nodiscard]] double dense_sqnr(ElementFormat format, bool stochastic = false);

class HealthRecorder {
 public:
  // The number by which a layer records. The same name gets the same number.
  std::size_t add_layer(const std::string& name);

  [[nodiscard]] std::size_t layer_count() const noexcept { return layers_.size(); }

  // Starts a step's record; what is left of an earlier one is dropped.
  void arm();
  [[nodiscard]] bool armed() const noexcept { return armed_; }
  // Whether record() of this operand would measure.
  [[nodiscard]] bool wants(std::size_t layer, LayerOperand operand) const {
    return armed_ && entries_.at(place(layer, operand)).row < 0;
  }
  // `codes` are those of x, natural orientation. `elements` of x count, where others are padding. No effect without
  // codes, unless armed, and for an operand that has been recorded already.
  void record(std::size_t layer, LayerOperand operand, const Tensor& x, const QuantTensor& codes, std::int64_t elements,
              bool stochastic = false);
  // Ends the record and reads it with one copy, which waits for the device. By layer in order of add_layer().
  [[nodiscard]] std::vector<OperandHealth> collect();

 private:
  struct Entry {
    std::int64_t row = -1;  // of results_
    ElementFormat format = ElementFormat::e4m3;
    std::int64_t elements = 0;
    bool stochastic = false;
  };

  static std::size_t place(std::size_t layer, LayerOperand operand) {
    return layer * kLayerOperandCount + static_cast<std::size_t>(operand);
  }

  std::vector<std::string> layers_;
  std::vector<Entry> entries_;  // kLayerOperandCount a layer
  std::int64_t recorded_ = 0;
  bool armed_ = false;
  Tensor results_;  // f64 [entries, QuantError::kFields], in order of recording
};

// A layer's end of its run's recorder; made without one, it records nothing.
class LayerHealth {
 public:
  LayerHealth() = default;
  LayerHealth(std::shared_ptr<HealthRecorder> recorder, const std::string& name);

  // Whether record() would measure: for operands whose values have to be brought for it.
  [[nodiscard]] bool wants(LayerOperand operand) const { return recorder_ && recorder_->wants(layer_, operand); }
  // Whether the next record is measured.
  [[nodiscard]] bool armed() const noexcept { return recorder_ != nullptr && recorder_->armed(); }
  void record(LayerOperand operand, const Tensor& x, const QuantTensor& codes, std::int64_t elements,
              bool stochastic = false) const {
    if (recorder_ && recorder_->armed()) recorder_->record(layer_, operand, x, codes, elements, stochastic);
  }

 private:
  std::shared_ptr<HealthRecorder> recorder_;
  std::size_t layer_ = 0;
};

// The operand that was the first to hold NaN or an infinity; null where all are finite.
[[nodiscard]] const OperandHealth* first_nonfinite(std::span<const OperandHealth> operands);

}  // namespace quench::recipes
