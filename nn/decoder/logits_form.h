#pragma once
// Scale and soft cap of a head's logits (StreamSpec), around the GEMMs that make them.

#include <memory>

#include "autograd/weight.h"
#include "core/ops/loss/lm_head_loss.h"
#include "nn/spec/block_spec.h"

namespace quench::nn {

// `gemms` with the spec's scale and soft cap on its logits; gradients() takes gradients of those and overwrites them
// with gradients of the plain logits. Null gemms: plain GEMMs with `weight`. Returns `gemms` if the spec has neither.
[[nodiscard]] std::unique_ptr<HeadGemms> with_logits_form(std::unique_ptr<HeadGemms> gemms, const StreamSpec& spec,
                                                          const autograd::Weight& weight);

}  // namespace quench::nn
