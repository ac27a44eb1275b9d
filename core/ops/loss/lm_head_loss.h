#pragma once
// Fused LM head and loss by chunks of rows: [N,V] logits are never materialized.

#include "core/ops/loss/cross_entropy.h"
#include "core/tensor/tensor.h"

namespace quench {

// Chunking and precision of the logits.
struct LmHeadLossOptions {
  std::int64_t chunk_rows = 0;  // 0: default_loss_chunk_rows
  // f32 logits, and f32 accumulation of a bf16 dweight. False: dtype of hidden, half the traffic, one more rounding per
  // logit and chunk (not in evaluation).
  bool f32_logits = true;
  DeviceType planned_for = DeviceType::cuda;  // as CrossEntropyArgs::planned_for
};

// GEMMs of an LM head, for heads in low precision.
class HeadGemms {
 public:
  virtual ~HeadGemms() = default;
  // Before the first logits() of a loss with gradients: whether gradients() will be asked for those of hidden states.
  // Without this call they are expected in training.
  virtual void expect_hidden_gradients(bool /*expected*/) {}
  // out [n,V] = hidden [n,H] * weight^T; f32 or dtype of hidden.
  virtual void logits(const Tensor& hidden, const Tensor& out) = 0;
  // Gradients of the latest logits(): dhidden [n,H] = dlogits [n,V] * weight, dweight [V,H] = dlogits^T * hidden + beta
  // * dweight; each optional.
  virtual void gradients(const Tensor& dlogits, const Tensor& hidden, const Tensor& dhidden, const Tensor& dweight,
                         float beta) = 0;
  // Buffer for the logit gradients [n,V] of a loss as float8 codes, which gradients_of_codes() takes in place of
  // gradients(). `bound`: of their magnitudes; `source`: their dtype before the cast. Undefined: gradients() it is.
  [[nodiscard]] virtual QuantTensor gradient_codes(const Shape& /*shape*/, DType /*source*/, float /*bound*/) {
    return {};
  }
  // gradients() of the codes that the loss has written; called only after gradient_codes() gave a buffer.
  virtual void gradients_of_codes(const QuantTensor& /*dlogits*/, const Tensor& /*hidden*/, const Tensor& /*dhidden*/,
                                  const Tensor& /*dweight*/, float /*beta*/) {
    QUENCH_FAIL(ErrorCode::unsupported, "this head takes no codes of logit gradients");
  }
};

// Loss of a chunk of logits, in place of cross_entropy().
class LogitsLoss {
 public:
  virtual ~LogitsLoss() = default;
  // Contract of cross_entropy(); `first_row`: index of the chunk's first row in the batch.
  virtual void run(const CrossEntropyArgs& chunk, std::int64_t first_row) = 0;
};

struct LmHeadLossArgs {
  Tensor hidden;            // [N,H]; f32/bf16
  Tensor weight;            // [V,H], dtype of hidden; values are read without `gemms`
  Tensor labels;            // i32 [N]
  Tensor losses;            // out, f32 [N]
  float grad_scale = 1.0f;  // usually 1 / valid tokens
  Tensor dhidden{};         // out, [N,H], optional
  Tensor dweight{};         // [V,H], f32 or dtype of weight, optional
  bool accumulate_dweight = false;
  LmHeadLossOptions options;
  HeadGemms* gemms = nullptr;  // null: gemm
  LogitsLoss* loss = nullptr;  // null: cross_entropy
};

void lm_head_loss(const LmHeadLossArgs& args);

// About 64 MiB of f32 logits, at least 256 rows. CUDA: about 1 GiB, rounded up to a power of two if at most a sixth
// more.
[[nodiscard]] std::int64_t default_loss_chunk_rows(std::int64_t vocab_size, DeviceType device = DeviceType::cpu);

}  // namespace quench
