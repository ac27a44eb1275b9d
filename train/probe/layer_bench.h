#pragma once
// Benchmark of one linear layer with its neighbours, forward and backward as in a training step.
//
// Neighbours are included because they produce the amax and quantized values for a float8 layer in fused epilogues, at
// some cost, saving the layer a pass over memory.

#include "nn/modules/linear_kernel.h"
#include "train/probe/layer_kind.h"
#include "train/probe/timing.h"

namespace quench {

struct LayerWork {
  std::int64_t tokens = 0;         // tokens per micro-batch
  std::int64_t micro_batches = 1;  // micro-batches per weight update
  DType dtype = DType::bf16;
  DType grad_dtype = DType::bf16;
  float eps = 1e-6f;  // epsilon of the norms
  autograd::Recompute recompute = autograd::Recompute::none;
};

class LayerBench {
 public:
  LayerBench(const LayerKind& kind, const LayerWork& work, Device device);

  // Milliseconds per micro-batch.
  [[nodiscard]] double milliseconds(const nn::LinearKernel& kernel, const TimingOptions& timing);
  // The micro-batches of one weight update.
  void run(const nn::LinearKernel& kernel);

 private:
  [[nodiscard]] std::vector<autograd::Variable> forward(const nn::LinearKernel& kernel) const;
  void forward_backward(const nn::LinearKernel& kernel) const;

  LayerKind kind_;
  LayerWork work_;
  nn::Parameter weight_, bias_, norm_before_, norm_after_;
  Tensor input_, residual_before_, residual_after_;
  Tensor gradient_;  // gradient of each result
};

// Normally distributed values: a few rows, repeated.
[[nodiscard]] Tensor random_rows(const Shape& shape, DType dtype, float deviation, Device device);

}  // namespace quench
