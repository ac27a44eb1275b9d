#pragma once
// The base of a model under adapters or fake quantization, without a second copy of its weights.

#include <memory>
#include <utility>
#include <vector>

#include "nn/experts/expert_linear.h"
#include "nn/modules/embedding.h"
#include "nn/modules/linear.h"
#include "nn/modules/rms_norm.h"

namespace quench::recipes {

// Scope in which all layers of `root` run in high precision, without adapters and fake quantization, on the current
// values of their own weights. No pass may be recorded or recomputed within it. `root` must outlive it.
class BaseKernels {
 public:
  explicit BaseKernels(nn::Module& root);
  // Restores the kernels.
  ~BaseKernels();
  BaseKernels(const BaseKernels&) = delete;
  BaseKernels& operator=(const BaseKernels&) = delete;

 private:
  void exchange() noexcept;

  std::vector<std::pair<nn::Linear*, std::shared_ptr<const nn::LinearKernel>>> linear_;
  std::vector<std::pair<nn::ExpertLinear*, std::shared_ptr<const nn::ExpertKernel>>> experts_;
  std::vector<std::pair<nn::RmsNorm*, const nn::Parameter*>> norms_;
  std::vector<std::pair<nn::Embedding*, std::shared_ptr<const nn::EmbeddingKernel>>> tables_;
};

}  // namespace quench::recipes
