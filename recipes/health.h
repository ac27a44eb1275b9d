#pragma once
// Quantization error of operands of converted layers in armed steps, measured without synchronisation or change of
// numerics on the form of an operand's first GEMM (x and W in forward, dy in dgrad), if quantized. Later micro-batches,
// recompute and later chunks of the head are skipped.

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
  bool stochastic = false;
  std::int64_t order = 0;  // 0: measured first
  QuantError error;

  [[nodiscard]] bool finite() const noexcept { return std::isfinite(error.most); }
  // Fractions of the elements, 0 .. 1.
  [[nodiscard]] double saturated_share() const noexcept { return share(error.saturated); }
  [[nodiscard]] double underflow_share() const noexcept { return share(error.underflows); }

 private:
  [[nodiscard]] double share(double count) const noexcept {
    return elements > 0 ? count / static_cast<double>(elements) : 0;
  }
};

// Signal-to-noise ratio in dB of round to nearest for normal values of the format: error variance 4^-m / 12 (m mantissa
// bits), mean square of log-uniform significands in [1,2) 3 / (2 ln 2), hence 10 log10(18 / ln 2 * 4^m): 32.2 for e4m3,
// 26.2 for e5m2 (normally distributed values: 31.5 and 25.5). Significands near 1 lose 3.3 dB more, near 2 2.7 dB less.
// Stochastic rounding (mean variance 4^-m / 6): 3 dB less. int8 has one step per row, amax / 127, and an error variance
// of step^2 / 12: 34.8 dB at an amax of eight standard deviations.
[[nodiscard]] double dense_sqnr(ElementFormat format, bool stochastic = false);

class HealthRecorder {
 public:
  std::size_t add_layer(const std::string& name);

  [[nodiscard]] std::size_t layer_count() const noexcept { return layers_.size(); }

  // Starts the record of a step; drops an unread one.
  void arm();
  [[nodiscard]] bool armed() const noexcept { return armed_; }
  [[nodiscard]] bool wants(std::size_t layer, LayerOperand operand) const {
    return armed_ && entries_.at(place(layer, operand)).row < 0;
  }
  // `codes`: quantized x. `elements`: unpadded count. No effect without codes, unless armed, or if already recorded.
  void record(std::size_t layer, LayerOperand operand, const Tensor& x, const QuantTensor& codes, std::int64_t elements,
              bool stochastic = false);
  // One device-to-host copy, which synchronises. Ordered by layer number.
  [[nodiscard]] std::vector<OperandHealth> collect();

 private:
  struct Entry {
    std::int64_t row = -1;  // row of results_
    ElementFormat format = ElementFormat::e4m3;
    std::int64_t elements = 0;
    bool stochastic = false;
  };

  static std::size_t place(std::size_t layer, LayerOperand operand) {
    return layer * kLayerOperandCount + static_cast<std::size_t>(operand);
  }

  std::vector<std::string> layers_;
  std::vector<Entry> entries_;  // kLayerOperandCount per layer
  std::int64_t recorded_ = 0;
  bool armed_ = false;
  Tensor results_;  // f64 [entries, QuantError::kFields]
};

// Default-constructed, it records nothing.
class LayerHealth {
 public:
  LayerHealth() = default;
  LayerHealth(std::shared_ptr<HealthRecorder> recorder, const std::string& name);

  // For operands that must be materialised for record().
  [[nodiscard]] bool wants(LayerOperand operand) const { return recorder_ && recorder_->wants(layer_, operand); }
  [[nodiscard]] bool armed() const noexcept { return recorder_ != nullptr && recorder_->armed(); }
  void record(LayerOperand operand, const Tensor& x, const QuantTensor& codes, std::int64_t elements,
              bool stochastic = false) const {
    if (recorder_ && recorder_->armed()) recorder_->record(layer_, operand, x, codes, elements, stochastic);
  }

 private:
  std::shared_ptr<HealthRecorder> recorder_;
  std::size_t layer_ = 0;
};

// In measurement order; null if all are finite.
[[nodiscard]] const OperandHealth* first_nonfinite(std::span<const OperandHealth> operands);

}  // namespace quench::recipes
