#pragma once
// Tensors of a model with Hugging Face checkpoint names, in write order.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "export/schemes/quantized_weight.h"
#include "nn/causal_lm.h"

namespace quench {

struct ModelTensor {
  std::string name;        // "model.layers.0.self_attn.q_proj.weight"
  std::string layer;       // linear layers: "model.layers.0.self_attn.q_proj"; else ""
  bool embedding = false;  // embedding table; `layer` is set if quantized
  Shape shape;
  DType dtype = DType::f32;  // dtype of value()
  // Values on the CPU, contiguous. Throws nonfinite, naming the tensor, for NaN, infinity, and values out of the
  // dtype's range.
  std::function<Tensor()> value;
  // Parameter that contains the rows; both live as long as the model.
  nn::Parameter* parameter = nullptr;
  const nn::ParameterPiece* piece = nullptr;
  // Set: stored quantized under this scheme.
  const Scheme* scheme = nullptr;
  std::shared_ptr<const QuantizedWeight> quantized;
};

// In model order, fused projections split. `dtype`: f32, bf16 or f16. Parameters gathered by `whole` (nn/whole_rows.h)
// are cached, at most two, for the lifetime of the tensors. The model must outlive the result.
[[nodiscard]] std::vector<ModelTensor> model_tensors(nn::CausalLm& model, DType dtype,
                                                     std::function<Tensor(const nn::Parameter&)> whole = {});

}  // namespace quench
