#include "nn/modules/embedding.h"

#include "autograd/functions.h"

namespace quench::nn {
namespace {

class PlainRows final : public EmbeddingKernel {
 public:
  [[nodiscard]] Variable apply(const Parameter& table, const Tensor& ids) const override {
    return autograd::embedding(table.weight(), ids);
  }
  [[nodiscard]] std::string_view name() const override { return "high precision"; }
};

}  // namespace

std::shared_ptr<const EmbeddingKernel> high_precision_embedding_kernel() {
  static const auto kernel = std::make_shared<const PlainRows>();
  return kernel;
}

Embedding::Embedding(std::int64_t rows, std::int64_t width, const ParameterOptions& options, float init_std)
    : weight_(make_parameter({rows, width}, options, Initializer::normal, init_std)) {
  weight_.slice.split = TensorSplit::rows;
  add_parameter("weight", weight_);
}

void Embedding::set_kernel(std::shared_ptr<const EmbeddingKernel> kernel) {
  for (const KernelParameter& own : kernel_->parameters()) remove_parameter(*own.parameter);
  kernel_ = std::move(kernel);
  for (const KernelParameter& own : kernel_->parameters()) {
    add_parameter(own.name, *own.parameter);
    if (named() && own.parameter->global_shape == weight_.global_shape) own.parameter->pieces = weight_.pieces;
  }
}

LinearInfo Embedding::info(std::string name) const {
  return {std::move(name), weight_.global_shape[1], weight_.global_shape[0], false, weight_.variable.value().device()};
}

}  // namespace quench::nn
