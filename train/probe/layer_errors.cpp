#include "train/probe/layer_errors.h"

#include <algorithm>
#include <cmath>

#include "core/ops/elementwise.h"
#include "core/ops/global_norm.h"
#include "nn/modules/linear.h"
#include "train/probe/layer_kind.h"
#include "train/probe/observed_linear.h"
#include "train/step/train_step.h"

namespace quench {
namespace {

double norm(const Tensor& x) {
  const Tensor square = Tensor::empty({1}, DType::f64, x.device());
  squared_norm({.tensors = std::span(&x, 1), .result = square});
  return std::sqrt(*square.to(Device{}).data<double>());
}

std::vector<std::string> recipes_of(const std::string& layer, const ConvertedLayers& layers) {
  std::vector<std::string> result;
  for (const auto& [recipe, names] : layers)
    if (std::ranges::find(names, layer) != names.end() ||
        std::ranges::find(names, last_component(layer)) != names.end())
      result.push_back(recipe);
  return result;
}

}  // namespace

double decibels(double relative_error) {
  return -20 * std::log10(relative_error);
}

double relative_error(const Tensor& x, const Tensor& exact) {
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor difference = Tensor::empty(x.shape(), DType::f32, x.device());
  if (x.dtype() == DType::f32)
    Tensor(difference).copy_from(x);
  else
    cast({x, difference});
  accumulate({exact, difference, -1.0f});
  const double noise = norm(difference);
  return noise == 0 ? 0.0 : noise / norm(exact);
}

std::vector<LayerError> measure_layer_errors(nn::CausalLm& model, const Batch& batch, const LmHeadLossOptions& loss,
                                             const ConvertedLayers& layers, const recipes::RecipeOptions& options) {
  std::vector<LayerError> result;
  model.visit([&](const std::string& name, nn::Module& module) {
    auto* linear = dynamic_cast<nn::Linear*>(&module);
    if (linear == nullptr) return;
    const std::vector<std::string> wanted = recipes_of(name, layers);
    if (wanted.empty()) return;
    linear->set_kernel(std::make_shared<ObservedLinear>(
        nn::high_precision_linear_kernel(),
        [&result, &options, wanted, info = linear->info(name)](const LinearOperands& operands) {
          const LinearProducts exact = run_products(*nn::high_precision_linear_kernel(), operands);
          for (const std::string& recipe : wanted) {
            const recipes::LinearPlan plan = recipes::find_recipe(recipe).plan(info, options);
            QUENCH_CHECK(plan.kernel != nullptr, "{} does not convert {}: {}", recipe, info.name, plan.skipped_because);
            const LinearProducts products = run_products(*plan.kernel, operands);
            result.push_back({info.name,
                              recipe,
                              {relative_error(products.y, exact.y), relative_error(products.dx, exact.dx),
                               relative_error(products.dw, exact.dw)}});
          }
        }));
  });
  for (nn::Parameter* parameter : model.parameters())
    if (autograd::Gradient* gradient = parameter->variable.gradient().get(); gradient != nullptr)
      gradient->on_ready([gradient] { gradient->reset(); });

  const std::int64_t tokens = batch.input_ids.numel();
  const Device device = model.options().device;
  nn::ForwardContext context = batch_context(model, batch);
  context.recompute = autograd::Recompute::full;
  autograd::Tape tape(autograd::Recompute::full);
  autograd::Variable sum;
  {
    const autograd::TapeScope scope(tape);
    sum = model.loss(batch.input_ids.view({tokens}).to(device), batch.labels.view({tokens}).to(device), context,
                     1.0f / static_cast<float>(std::max<std::int64_t>(batch.valid_tokens, 1)), loss);
  }
  tape.backward(sum);
  model.visit([](const std::string&, nn::Module& module) {
    if (auto* linear = dynamic_cast<nn::Linear*>(&module)) linear->set_kernel(nn::high_precision_linear_kernel());
  });
  const float mean = *sum.value().to(Device{}).data<float>();
  QUENCH_CHECK_AS(ErrorCode::nonfinite, std::isfinite(mean),
                  "the model's loss on one micro-batch is {}, so errors of recipes cannot be measured: its weights "
                  "have NaN or infinity, or its activations overflow",
                  mean);
  return result;
}

}  // namespace quench
