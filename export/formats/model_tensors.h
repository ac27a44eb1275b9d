#pragma once
// Tensors under Hugging Face names, in write order.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "export/schemes/quantized_weight.h"
#include "nn/decoder/causal_lm.h"

namespace quench {

struct ModelTensor {
  std::string name;        // "model.layers.0.self_attn.q_proj.weight"
  std::string layer;       // name of linear layers, without ".weight"; else ""
  bool embedding = false;  // `layer` is set if quantized
  Shape shape;
  DType dtype = DType::f32;  // result of value()
  // CPU, contiguous. Throws nonfinite, naming the tensor, for NaN, infinity, values out of the dtype's range.
  std::function<Tensor()> value;
  // Contains the rows.
  nn::Parameter* parameter = nullptr;
  const nn::ParameterPiece* piece = nullptr;
  // Null: unquantized.
  const Scheme* scheme = nullptr;
  std::shared_ptr<const QuantizedWeight> quantized;
  // The file holds the values, norms with their offset, times this; `quantized` contains it.
  float factor = 1.0f;
};

// Copies of embedding and head in each MTP layer of DeepSeek's checkpoints.
inline constexpr std::string_view kMtpEmbedding = "embed_tokens.weight", kMtpHead = "shared_head.head.weight";
// Name, within its layer, of a tensor of the MTP layers that config.json declares; else "".
[[nodiscard]] std::string_view mtp_part(std::string_view name, const nn::ModelConfig& config);
// Drops the tensors of MTP layers.
void leave_out_mtp(std::vector<ModelTensor>& tensors, const nn::ModelConfig& config);

// Fused projections are split. The copies of MTP layers are the last tensors. `dtype`: f32, bf16 or f16. Parameters
// gathered by `whole` (nn/modules/whole_rows.h) are cached, at most two. The model must outlive the result.
[[nodiscard]] std::vector<ModelTensor> model_tensors(nn::CausalLm& model, DType dtype,
                                                     std::function<Tensor(const nn::Parameter&)> whole = {});

}  // namespace quench
