#pragma once
// One linear layer with its neighbours, run forwards and backwards as a training step runs it.
//
// The neighbours belong to the measurement: they write the maxima and codes that a float8 layer asks for, which costs
// them something and saves the layer a pass over memory.

#include "nn/linear_kernel.h"
#include "train/probe/layer_kind.h"
#include "train/probe/timing.h"

namespace quench {

struct LayerWork {
  std::int64_t tokens = 0;         // of a micro-batch
  std::int64_t micro_batches = 1;  // between two changes of the weight
  DType dtype = DType::bf16;
  DType grad_dtype = DType::bf16;
  float eps = 1e-6f;  // of the norms
  autograd::Recompute recompute = autograd::Recompute::none;
};

class LayerBench {
 public:
  LayerBench(const LayerKind& kind, const LayerWork& work, Device device);

  // Milliseconds of a micro-batch.
  [[nodiscard]] double milliseconds(const nn::LinearKernel& kernel, const TimingOptions& timing);
  // The micro-batches between two changes of the weight.
  void run(const nn::LinearKernel& kernel);

 private:
  [[nodiscard]] std::vector<autograd::Variable> forward(const nn::LinearKernel& kernel) const;
  void forward_backward(const nn::LinearKernel& kernel) const;

  LayerKind kind_;
  LayerWork work_;
  nn::Parameter weight_, bias_, norm_before_, norm_after_;
  Tensor input_, residual_before_, residual_after_;
  Tensor gradient_;  // of each result
};

// Values of a normal distribution: some rows, repeated.
[[nodiscard]] Tensor random_rows(const Shape& shape, DType dtype, float deviation, Device device);

}  // namespace quench
