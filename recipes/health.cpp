#include "recipes/health.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace quench::recipes {

std::string_view to_string(LayerOperand operand) noexcept {
  switch (operand) {
    case LayerOperand::input: return "input";
    case LayerOperand::weight: return "weight";
    case LayerOperand::output_gradient: return "output_gradient";
  }
  return "unknown";
}

double dense_sqnr(ElementFormat format, bool stochastic) {
  if (format == ElementFormat::int8) return 10 * std::log10((stochastic ? 6 : 12) * std::pow(Int8Code::kMax / 8, 2));
  int mantissa_bits = 0;
  dispatch_element<E4m3, E5m2>(format, "dense_sqnr", [&]<class Element>() { mantissa_bits = Element::kMantissaBits; });
  return 10 * std::log10((stochastic ? 9 : 18) / std::numbers::ln2 * std::pow(4.0, mantissa_bits));
}

std::size_t HealthRecorder::add_layer(const std::string& name) {
  const auto known = std::ranges::find(layers_, name);
  if (known != layers_.end()) return static_cast<std::size_t>(known - layers_.begin());
  layers_.push_back(name);
  entries_.resize(layers_.size() * kLayerOperandCount);
  return layers_.size() - 1;
}

void HealthRecorder::arm() {
  std::ranges::fill(entries_, Entry{});
  recorded_ = 0;
  armed_ = true;
}

void HealthRecorder::record(std::size_t layer, LayerOperand operand, const Tensor& x, const QuantTensor& codes,
                            std::int64_t elements, bool stochastic) {
  if (!armed_ || !codes.defined()) return;
  Entry& entry = entries_.at(place(layer, operand));
  if (entry.row >= 0) return;
  const auto capacity = static_cast<std::int64_t>(entries_.size());
  if (recorded_ == 0 && (!results_.defined() || results_.size(0) != capacity || results_.device() != x.device())) {
    const MemoryScope scope(MemoryCategory::other);
    results_ = Tensor::empty({capacity, QuantError::kFields}, DType::f64, x.device());
  }
  quant_error({x.is_contiguous() ? x : x.clone(), codes, results_.select(0, recorded_)});
  entry = {recorded_++, codes.format().element, elements, stochastic};
}

std::vector<OperandHealth> HealthRecorder::collect() {
  armed_ = false;
  std::vector<OperandHealth> result;
  if (recorded_ == 0) return result;
  const Tensor host = results_.narrow(0, 0, recorded_).to(Device{});
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.row < 0) continue;
    result.push_back({layers_[i / kLayerOperandCount], static_cast<LayerOperand>(i % kLayerOperandCount), entry.format,
                      entry.elements, entry.stochastic, entry.row, QuantError::read(host.select(0, entry.row))});
  }
  recorded_ = 0;
  return result;
}

LayerHealth::LayerHealth(std::shared_ptr<HealthRecorder> recorder, const std::string& name)
    : recorder_(std::move(recorder)) {
  if (recorder_) layer_ = recorder_->add_layer(name);
}

const OperandHealth* first_nonfinite(std::span<const OperandHealth> operands) {
  const OperandHealth* first = nullptr;
  for (const OperandHealth& operand : operands)
    if (!operand.finite() && (first == nullptr || operand.order < first->order)) first = &operand;
  return first;
}

}  // namespace quench::recipes
