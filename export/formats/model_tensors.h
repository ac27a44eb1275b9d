#pragma once
// Tensors under Hugging Face names, in write order.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "export/schemes/quantized_weight.h"
#include "nn/causal_lm.h"

namespace quench {

struct ModelTensor {
  std::string name;        // "model.layers.0.self_attn.q_proj.weight"
  std::string layer;       // of linear layers, without ".weight"; else ""
  bool embedding = false;  // `layer` is set if quantized
  Shape shape;
  DType dtype = DType::f32;  // of value()
  // CPU, contiguous. Throws nonfinite, naming the tensor, for NaN, infinity, values out of the dtype's range.
  std::function<Tensor()> value;
  // Contains the rows.
  nn::Parameter* parameter = nullptr;
  const nn::ParameterPiece* piece = nullptr;
  // Null: unquantized.
  const Scheme* scheme = nullptr;
  std::shared_ptr<const QuantizedWeight> quantized;
};

// Fused projections are split. `dtype`: f32, bf16 or f16. Parameters gathered by `whole` (nn/whole_rows.h) are cached,
// at most two. The model must outlive the result.
[[nodiscard]] std::vector<ModelTensor> model_tensors(nn::CausalLm& model, DType dtype,
                                                     std::function<Tensor(const nn::Parameter&)> whole = {});

}  // namespace quench
