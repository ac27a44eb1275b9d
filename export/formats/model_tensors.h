#pragma once
// The tensors of a model as they stand in Hugging Face checkpoints, ready to be written one after the other.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "export/schemes/quantized_weight.h"
#include "nn/causal_lm.h"

namespace quench {

struct ModelTensor {
  std::string name;        // "model.layers.0.self_attn.q_proj.weight"
  std::string layer;       // of a linear layer's weight: "model.layers.0.self_attn.q_proj"; else ""
  bool embedding = false;  // the table of embeddings; its layer is named where it is quantized
  Shape shape;
  DType dtype = DType::f32;  // of value()
  // Its values on the CPU, contiguous. Throws nonfinite, naming the tensor, for NaN, infinity, and values that the
  // dtype cannot hold.
  std::function<Tensor()> value;
  // Whose rows they are; both as long as the model.
  nn::Parameter* parameter = nullptr;
  const nn::ParameterPiece* piece = nullptr;
  // Set: stored as these codes.
  const Scheme* scheme = nullptr;
  std::shared_ptr<const QuantizedWeight> quantized;
};

// In the model's order, fused projections split. `dtype` f32, bf16 or f16. What `whole` brings (nn/whole_rows.h) is
// kept for the pieces that follow, of two parameters at most, as long as the tensors. The model outlives the result.
[[nodiscard]] std::vector<ModelTensor> model_tensors(nn::CausalLm& model, DType dtype,
                                                     std::function<Tensor(const nn::Parameter&)> whole = {});

}  // namespace quench
