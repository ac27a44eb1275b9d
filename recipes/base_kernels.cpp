#include "recipes/base_kernels.h"

#include "nn/modules/module.h"

namespace quench::recipes {

BaseKernels::BaseKernels(nn::Module& root) {
  root.visit([&](const std::string&, nn::Module& module) {
    if (auto* linear = dynamic_cast<nn::Linear*>(&module))
      linear_.emplace_back(linear, nn::high_precision_linear_kernel());
    if (auto* experts = dynamic_cast<nn::ExpertLinear*>(&module))
      experts_.emplace_back(experts, nn::high_precision_expert_kernel());
    if (auto* norm = dynamic_cast<nn::RmsNorm*>(&module)) norms_.emplace_back(norm, &norm->own_weight());
    if (auto* table = dynamic_cast<nn::Embedding*>(&module))
      tables_.emplace_back(table, nn::high_precision_embedding_kernel());
  });
  exchange();
}

BaseKernels::~BaseKernels() {
  exchange();
}

void BaseKernels::exchange() noexcept {
  for (auto& [layer, kernel] : linear_) layer->exchange_kernel(kernel);
  for (auto& [layer, kernel] : experts_) layer->exchange_kernel(kernel);
  for (auto& [norm, weight] : norms_) norm->exchange_weight(weight);
  for (auto& [table, kernel] : tables_) table->exchange_kernel(kernel);
}

}  // namespace quench::recipes
