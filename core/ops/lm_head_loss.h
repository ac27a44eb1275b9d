#pragma once
// The language-model head and its loss in one: logits, cross-entropy and gradients are made chunk by chunk of rows, so
// that the full [N,V] logits never exist. A composition of gemm and cross_entropy; runs on any device that has both.

#include "core/tensor/tensor.h"

namespace quench {

struct LmHeadLossOptions {
  std::int64_t chunk_rows = 0;  // rows whose logits exist at once; 0: default_loss_chunk_rows
  // Keep logits, and where dweight is bf16 its sum over chunks, in f32 until the end. Off: in the dtype of hidden, as
  // frameworks do that take the head as one bf16 layer: half the memory traffic, a rounding a chunk more in dweight
  // and one in each logit. Without gradients logits are f32 anyway.
  bool f32_logits = true;
};

// The head's three products for a chunk of rows, where they are not plain gemms: a low-precision recipe's way.
class HeadGemms {
 public:
  virtual ~HeadGemms() = default;
  // out [n,V] = hidden [n,H] * weight^T; out is f32 or the dtype of hidden.
  virtual void logits(const Tensor& hidden, const Tensor& out) = 0;
  // Of the chunk whose logits were made last: dhidden [n,H] = dlogits [n,V] * weight and
  // dweight [V,H] = dlogits^T * hidden + beta * dweight. Either may be undefined: not wanted.
  virtual void gradients(const Tensor& dlogits, const Tensor& hidden, const Tensor& dhidden, const Tensor& dweight,
                         float beta) = 0;
};

struct LmHeadLossArgs {
  Tensor hidden;            // [N,H]; f32 or bf16
  Tensor weight;            // [V,H], dtype of hidden
  Tensor labels;            // i32 [N]
  Tensor losses;            // out, f32 [N]
  float grad_scale = 1.0f;  // factor of the gradients, normally 1 / (valid tokens of the whole step)
  Tensor dhidden;           // out, [N,H], or undefined for evaluation
  Tensor dweight;           // [V,H], f32 or dtype of weight, or undefined when frozen
  bool accumulate_dweight = false;
  LmHeadLossOptions options;
  HeadGemms* products = nullptr;  // null: gemm
};

void lm_head_loss(const LmHeadLossArgs& args);

// As many rows as keep a chunk of f32 logits near 64 MiB, at least 256; on a GPU, whose products want more rows, near
// 1 GiB, or a power of two that takes at most a sixth more.
[[nodiscard]] std::int64_t default_loss_chunk_rows(std::int64_t vocab_size, DeviceType device = DeviceType::cpu);

}  // namespace quench
