#pragma once
// The language-model head and its loss in one: logits, cross-entropy and gradients are made chunk by chunk of rows, so
// that the full [N,V] logits never exist. A composition of gemm and cross_entropy; runs on any device that has both.

#include "core/tensor.h"

namespace quench {

struct LmHeadLossArgs {
  Tensor hidden;            // [N,H]; f32 or bf16
  Tensor weight;            // [V,H], dtype of hidden
  Tensor labels;            // i32 [N]
  Tensor losses;            // out, f32 [N]
  float grad_scale = 1.0f;  // factor of the gradients, normally 1 / (valid tokens of the whole step)
  Tensor dhidden;           // out, [N,H], or undefined for evaluation
  Tensor dweight;           // [V,H], f32 or dtype of weight, or undefined when frozen
  bool accumulate_dweight = false;
  std::int64_t chunk_rows = 0;  // 0: as many rows as keep a chunk of f32 logits near 64 MiB, at least 256
};

void lm_head_loss(const LmHeadLossArgs& args);

// Rows per chunk for a vocabulary when chunk_rows is 0.
[[nodiscard]] std::int64_t default_loss_chunk_rows(std::int64_t vocab_size);

}  // namespace quench
