#include "recipes/delayed_scaling.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/ops/quantize/delayed_scaling.h"

namespace quench::recipes {
namespace {

float largest_of(ElementFormat format) {
  float largest = 0;
  dispatch_element<E4m3, E5m2>(format, "delayed scaling", [&]<class Element>() { largest = Element::kMax; });
  return largest;
}

bool is_amax(float value) {
  return value > 0 && std::isfinite(value);
}

}  // namespace

std::size_t DelayedScaling::add_layer(const std::string& name, ElementFormat input, ElementFormat output_gradient) {
  const auto known = std::ranges::find(names_, name);
  if (known != names_.end()) return static_cast<std::size_t>(known - names_.begin());
  QUENCH_CHECK(!recorded_.defined(), "delayed scaling: layer {} is new after allocate()", name);
  names_.push_back(name);
  largest_.push_back(largest_of(input));
  largest_.push_back(largest_of(output_gradient));
  return names_.size() - 1;
}

void DelayedScaling::allocate(Device device) {
  const auto operands = static_cast<std::int64_t>(largest_.size());
  const MemoryScope scope(MemoryCategory::other);
  recorded_ = Tensor::zeros({operands}, DType::f32, device);
  scale_ = Tensor::zeros({operands}, DType::f32, device);
  history_ = Tensor::zeros({operands, options_.history}, DType::f32, device);
  device_largest_ = Tensor::from_values<float>({operands}, largest_).to(device);
  has_history_.assign(largest_.size(), false);
  observed_ = has_history_;
}

std::string DelayedScaling::describe() const {
  return fmt::format(
      "delayed scaling: inputs and output gradients of {} layers, amax of the last {} step{}{}; weights and the head "
      "have no history",
      names_.size(), options_.history, options_.history == 1 ? "" : "s",
      options_.margin > 0 ? fmt::format(", margin 2^{}", options_.margin) : "");
}

OperandScaling DelayedScaling::scaling(std::size_t operand, bool records) const {
  if (!recorded_.defined()) return {};
  const auto at = [operand](const Tensor& t) { return t.select(0, static_cast<std::int64_t>(operand)); };
  return {has_history_[operand] ? at(scale_) : Tensor(), records ? at(recorded_) : Tensor()};
}

bool DelayedScaling::waits_for_amax() const noexcept {
  return std::ranges::find(has_history_, false) != has_history_.end();
}

void DelayedScaling::observe(std::span<const float> recorded) {
  QUENCH_CHECK(recorded.size() == observed_.size(), "delayed scaling: {} values of {} operands", recorded.size(),
               observed_.size());
  for (std::size_t i = 0; i < recorded.size(); ++i) observed_[i] = is_amax(recorded[i]);
}

void DelayedScaling::advance() {
  update_delayed_scales({.recorded = recorded_,
                         .history = history_,
                         .largest = device_largest_,
                         .scale = scale_,
                         .margin = options_.margin});
  const bool planned = recorded_.device().is_meta();  // without values
  for (std::size_t i = 0; i < observed_.size(); ++i)
    if (observed_[i] || planned) has_history_[i] = true;
  observed_.assign(observed_.size(), false);
}

void DelayedScaling::discard() {
  recorded_.zero();
  observed_.assign(observed_.size(), false);
}

std::vector<DelayedScaling::LayerHistory> DelayedScaling::histories() const {
  std::vector<LayerHistory> result;
  for (std::size_t i = 0; i < names_.size(); ++i)
    result.push_back({names_[i], history_.narrow(0, static_cast<std::int64_t>(2 * i), 2)});
  return result;
}

void DelayedScaling::restored() {
  discard();
  if (!history_.device().is_meta()) {
    const Tensor host = history_.to(Device{});
    const std::span values(host.data<float>(), static_cast<std::size_t>(host.numel()));
    const auto steps = static_cast<std::size_t>(options_.history);
    for (std::size_t i = 0; i < has_history_.size(); ++i) {
      const auto own = values.subspan(i * steps, steps);
      QUENCH_CHECK_AS(ErrorCode::corrupt, std::ranges::all_of(own, [](float x) { return x == 0 || is_amax(x); }),
                      "the stored amax history of {} holds a value that is negative or not finite", names_[i / 2]);
      has_history_[i] = own.front() > 0;
    }
  }
  advance();
}

}  // namespace quench::recipes
