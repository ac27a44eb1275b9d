#pragma once
// An optimizer that the table's file does not know: Lion (Chen et al. 2023, arXiv:2302.06675), on the CPU and on the
// meta device.

#include <cmath>

#include "core/ops/elementwise.h"
#include "core/system/choice_table.h"
#include "nn/optim/table.h"

namespace quench::testing {

// c = sign(beta1 m + (1 - beta1) g), m = beta2 m + (1 - beta2) g, p -= lr (c + decay p), in f32; p is rounded to
// nearest.
class Lion final : public nn::Optimizer {
 public:
  Lion(const std::vector<nn::Parameter*>& all, nn::OptimizerOptions options)
      : Optimizer(all), options_(std::move(options)) {
    const MemoryScope scope(MemoryCategory::optimizer);
    for (const nn::Parameter* p : parameters()) {
      const Tensor value = p->variable.value();
      momenta_.push_back(Tensor::zeros(value.shape(), DType::f32, value.device()));
    }
  }

  using Optimizer::step;
  void step(double lr, std::int64_t, const Tensor& grad_scale, nn::ParameterRange part) override {
    for (std::size_t i = part.begin; i < part.end; ++i) {
      const Tensor gradient = gradient_of(i);
      if (momenta_[i].device().is_cpu()) update(i, gradient, lr, *grad_scale.data<float>());
      parameters()[i]->mark_changed();
    }
  }

 private:
  [[nodiscard]] std::vector<KeptTensor> kept(std::size_t index) override { return {{"momentum", &momenta_[index]}}; }

  void update(std::size_t index, const Tensor& gradient, double lr, float grad_scale) {
    if (!std::isfinite(grad_scale)) return;
    const Tensor param = parameters()[index]->variable.value();
    const Tensor g = Tensor::empty(param.shape(), DType::f32), p = Tensor::empty(param.shape(), DType::f32);
    cast({gradient, g});
    cast({param, p});
    const auto decay = static_cast<float>(options_.weight_decay_of(*parameters()[index]));
    const auto beta1 = static_cast<float>(options_.beta1), beta2 = static_cast<float>(options_.beta2);
    auto* m = momenta_[index].data<float>();
    for (std::int64_t i = 0; i < p.numel(); ++i) {
      const float scaled = g.data<float>()[i] * grad_scale, mixed = beta1 * m[i] + (1 - beta1) * scaled;
      const float sign = mixed > 0 ? 1.0f : mixed < 0 ? -1.0f : 0.0f;
      m[i] = beta2 * m[i] + (1 - beta2) * scaled;
      p.data<float>()[i] -= static_cast<float>(lr) * (sign + decay * p.data<float>()[i]);
    }
    cast({p, param});
  }

  nn::OptimizerOptions options_;
  std::vector<Tensor> momenta_;
};

inline constexpr std::string_view kLionKeys[] = {"betas"};

inline const Registered<nn::OptimizerEntry> kLion{
    {"lion", "the sign of the momentum", kLionKeys, 1, 4, "f32",
     [](const std::vector<nn::Parameter*>& parameters, const nn::OptimizerOptions& options)
         -> std::unique_ptr<nn::Optimizer> { return std::make_unique<Lion>(parameters, options); }}};

}  // namespace quench::testing
