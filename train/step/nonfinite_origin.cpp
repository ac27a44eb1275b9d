#include "train/step/nonfinite_origin.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/ops/global_norm.h"
#include "nn/modules/linear.h"
#include "train/step/train_step.h"

namespace quench {
namespace {

// f64 sum of squares: finite for finite values.
bool is_finite(const Tensor& tensor) {
  const Tensor square = Tensor::empty({1}, DType::f64, tensor.device());
  squared_norm({.tensors = std::span(&tensor, 1), .result = square});
  return std::isfinite(*square.to(Device{}).data<double>());
}

// "model.norm.weight" -> "weight of model.norm"
std::string words(const std::string& parameter) {
  const auto dot = parameter.rfind('.');
  return dot == std::string::npos ? parameter
                                  : fmt::format("{} of {}", parameter.substr(dot + 1), parameter.substr(0, dot));
}

// Kernel wrapper that records the first non-finite operand.
class FiniteWatch final : public nn::LinearObserver {
 public:
  FiniteWatch(std::shared_ptr<const nn::LinearKernel> kernel, std::string layer, std::string& first)
      : LinearObserver(std::move(kernel)), layer_(std::move(layer)), first_(first) {}

 private:
  [[nodiscard]] nn::Variable observe(const nn::Variable& x, const nn::Parameter& weight,
                                     const nn::Weight& bias) const override {
    look_at(x.value(), "input");
    nn::Variable y = wrapped().apply(x, weight, bias);
    look_at(y.value(), "output");
    return y;
  }
  void look_at(const Tensor& operand, std::string_view what) const {
    if (first_.empty() && !is_finite(operand)) first_ = fmt::format("{} of {}", what, layer_);
  }

  std::string layer_;
  std::string& first_;
};

// Watches all linear layers of a model during its lifetime.
class WatchedModel {
 public:
  WatchedModel(nn::CausalLm& model, std::string& first) {
    model.visit([&](const std::string& name, nn::Module& module) {
      auto* linear = dynamic_cast<nn::Linear*>(&module);
      if (linear == nullptr) return;
      layers_.emplace_back(linear, linear->shared_kernel());
      linear->set_kernel(std::make_shared<FiniteWatch>(linear->shared_kernel(), name, first));
    });
  }
  ~WatchedModel() {
    for (auto& [linear, kernel] : layers_) linear->set_kernel(kernel);
  }
  WatchedModel(const WatchedModel&) = delete;
  WatchedModel& operator=(const WatchedModel&) = delete;

 private:
  std::vector<std::pair<nn::Linear*, std::shared_ptr<const nn::LinearKernel>>> layers_;
};

}  // namespace

std::string first_nonfinite_weight(nn::CausalLm& model) {
  for (const nn::Parameter* parameter : model.parameters())
    if (!is_finite(parameter->variable.value())) return words(parameter->name);
  return {};
}

std::string first_nonfinite_forward(nn::CausalLm& model, std::span<const Batch> batches,
                                    const LmHeadLossOptions& loss) {
  std::string first = first_nonfinite_weight(model);
  if (!model.is_whole()) return first;
  const autograd::NoGrad no_grad;
  const WatchedModel watched(model, first);
  const Device device = model.options().device;
  // FSDP all-gathers are collective: all ranks run the same passes.
  const bool alone = model.weights_stay();
  for (const Batch& batch : batches) {
    if (alone && !first.empty()) break;
    if (alone && batch.valid_tokens == 0) continue;
    const std::int64_t tokens = batch.input_ids.numel();
    const nn::ForwardContext context = batch_context(model, batch);
    const Tensor ids = batch.input_ids.view({tokens}).to(device);
    const nn::Variable hidden = model.hidden(ids, context);
    if (first.empty() && !is_finite(hidden.value())) first = "output of model.norm";
    if (alone && !first.empty()) break;
    const nn::Variable sum = model.loss(ids, batch.labels.view({tokens}).to(device), context, 1.0f, loss);
    if (first.empty() && !is_finite(sum.value())) first = "logits";
  }
  return first;
}

std::string first_nonfinite_gradient(nn::CausalLm& model) {
  std::vector<nn::Parameter*> parameters = model.parameters();
  std::ranges::reverse(parameters);
  for (const nn::Parameter* parameter : parameters) {
    const Tensor gradient = parameter->variable.grad();
    if (gradient.defined() && !is_finite(gradient)) return "gradient of " + parameter->name;
  }
  return {};
}

}  // namespace quench
