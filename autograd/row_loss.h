#pragma once
// LM head under a loss that depends on the rows' cross-entropies as a whole, such as losses of whole sequences.

#include <functional>

#include "autograd/variable.h"
#include "autograd/weight.h"
#include "core/ops/loss/lm_head_loss.h"

namespace quench::autograd {

// `losses`: cross-entropies f32 [N], 0 for rows without a label. Writes the loss to `value`, f32 [1]. Returns f32 [N]
// on the device of `losses`: the loss' derivatives with respect to them.
using RowDerivatives = std::function<Tensor(const Tensor& losses, const Tensor& value)>;

// f32 [1]. Logits of hidden [N,H] * weight [V,H]^T are never materialized as a whole: cross-entropies come first, once
// more with their gradients if the weight is trained. Gradients are computed in the forward pass, so the result must be
// the root of the backward pass. Labels: i32 [N].
Variable lm_head_row_loss(const Variable& hidden, const Weight& weight, const Tensor& labels,
                          const RowDerivatives& derivatives, const LmHeadLossOptions& options = {},
                          HeadGemms* gemms = nullptr);

}  // namespace quench::autograd
