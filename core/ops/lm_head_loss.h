#pragma once
// LM head and cross-entropy fused over chunks of rows: the full [N,V] logits are never allocated. Composed of gemm and
// cross_entropy.

#include "core/tensor/tensor.h"

namespace quench {

struct LmHeadLossOptions {
  std::int64_t chunk_rows = 0;  // rows per chunk; 0: default_loss_chunk_rows
  // f32 logits, and f32 accumulation of a bf16 dweight over chunks. False: dtype of hidden, half the memory traffic,
  // one more rounding per logit and per chunk. Logits are f32 in evaluation.
  bool f32_logits = true;
};

// Head GEMMs of a recipe.
class HeadGemms {
 public:
  virtual ~HeadGemms() = default;
  // out [n,V] = hidden [n,H] * weight^T; f32 or dtype of hidden.
  virtual void logits(const Tensor& hidden, const Tensor& out) = 0;
  // Gradients of the latest logits() chunk: dhidden [n,H] = dlogits [n,V] * weight, dweight [V,H] = dlogits^T * hidden
  // + beta * dweight. Either may be undefined.
  virtual void gradients(const Tensor& dlogits, const Tensor& hidden, const Tensor& dhidden, const Tensor& dweight,
                         float beta) = 0;
};

struct LmHeadLossArgs {
  Tensor hidden;            // [N,H]; f32 or bf16
  Tensor weight;            // [V,H], dtype of hidden
  Tensor labels;            // i32 [N]
  Tensor losses;            // out, f32 [N]
  float grad_scale = 1.0f;  // usually 1 / (valid tokens of the step)
  Tensor dhidden;           // out, [N,H], or undefined
  Tensor dweight;           // [V,H], f32 or dtype of weight, or undefined (frozen)
  bool accumulate_dweight = false;
  LmHeadLossOptions options;
  HeadGemms* products = nullptr;  // null: gemm
};

void lm_head_loss(const LmHeadLossArgs& args);

// Rows for about 64 MiB of f32 logits, at least 256. CUDA: about 1 GiB, rounded up to a power of two if that is at most
// a sixth more.
[[nodiscard]] std::int64_t default_loss_chunk_rows(std::int64_t vocab_size, DeviceType device = DeviceType::cpu);

}  // namespace quench
