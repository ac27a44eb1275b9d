#include "export/ptq/observers.h"

#include <algorithm>

namespace quench {
namespace {

class ObservedLinear final : public nn::LinearObserver {
 public:
  ObservedLinear(std::string name, std::shared_ptr<std::vector<InputStatistics>> statistics,
                 std::shared_ptr<const ObservedPass> pass)
      : LinearObserver(nn::high_precision_linear_kernel()),
        name_(std::move(name)),
        statistics_(std::move(statistics)),
        pass_(std::move(pass)) {}

 private:
  [[nodiscard]] nn::Variable observe(const nn::Variable& x, const nn::Parameter& weight,
                                     const nn::Weight& bias) const override {
    const bool whole = x.value().size(0) == pass_->tokens;
    statistics_->front().add(x.value(), name_, whole ? std::span(pass_->first_rows) : std::span<const std::int64_t>());
    return wrapped().apply(x, weight, bias);
  }

  std::string name_;
  std::shared_ptr<std::vector<InputStatistics>> statistics_;
  std::shared_ptr<const ObservedPass> pass_;
};

class ObservedExperts final : public nn::ExpertKernel {
 public:
  ObservedExperts(std::string name, std::shared_ptr<std::vector<InputStatistics>> statistics)
      : name_(std::move(name)), statistics_(std::move(statistics)) {}
  [[nodiscard]] nn::Variable apply(const nn::Variable& x, const nn::Parameter& weight,
                                   const autograd::TokenPermutation& rows) const override {
    const Tensor ends = rows.ends.to(Device{}), counts = rows.counts.to(Device{});
    std::int64_t begin = 0;
    for (std::size_t expert = 0; expert < statistics_->size(); ++expert) {
      const auto at = static_cast<std::int64_t>(expert);
      const auto count = static_cast<std::int64_t>(counts.data<float>()[at]);  // excludes padding
      if (count > 0)
        (*statistics_)[expert].add(x.value().narrow(0, begin, count), fmt::format("expert {} of {}", expert, name_));
      begin = ends.data<std::int32_t>()[at];
    }
    return nn::high_precision_expert_kernel()->apply(x, weight, rows);
  }
  [[nodiscard]] std::string_view name() const override { return "observed"; }

 private:
  std::string name_;
  std::shared_ptr<std::vector<InputStatistics>> statistics_;
};

}  // namespace

InputObservers::~InputObservers() {
  stop();
}

void InputObservers::stop() {
  for (nn::Linear* layer : layers_)
    if (dynamic_cast<const ObservedLinear*>(&layer->kernel()) != nullptr)
      layer->set_kernel(nn::high_precision_linear_kernel());
  for (nn::ExpertLinear* layer : experts_) layer->set_kernel(nn::high_precision_expert_kernel());
  layers_.clear();
  experts_.clear();
}

InputObservers::Statistics InputObservers::make(const nn::Parameter& weight, std::int64_t experts) {
  auto all = std::make_shared<std::vector<InputStatistics>>();
  for (std::int64_t expert = 0; expert < experts; ++expert) all->emplace_back(weight.global_shape[1], with_gram_);
  statistics_[&weight] = all;
  return all;
}

void InputObservers::observe(const std::string& name, nn::Linear& layer) {
  layer.set_kernel(std::make_shared<ObservedLinear>(name, make(layer.weight(), 1), pass_));
  layers_.push_back(&layer);
}

void InputObservers::observe(const std::string& name, nn::ExpertLinear& layer) {
  layer.set_kernel(std::make_shared<ObservedExperts>(name, make(layer.weight(), layer.experts())));
  experts_.push_back(&layer);
}

InputStatistics& InputObservers::of(const nn::Parameter& weight, std::int64_t expert) const {
  const auto found = statistics_.find(&weight);
  QUENCH_CHECK(found != statistics_.end(), "{} was not observed", weight.name);
  return found->second->at(static_cast<std::size_t>(expert));
}

}  // namespace quench
