#pragma once
// Log-probabilities of a prompt's own tokens.

#include <cstdint>
#include <span>
#include <vector>

#include "apps/serve/api/choice.h"
#include "nn/decoder/causal_lm.h"

namespace quench::serve {

// One pass of the model, through its KV cache where that is quantized, as decoding would. The first token has no
// log-probability; the others `top` alternatives each. `adapter`: as EngineRequest's. Throws nonfinite for NaN or
// infinite logits. The model's thread alone.
[[nodiscard]] std::vector<ScoredToken> score_prompt(const nn::CausalLm& model, std::span<const std::int32_t> prompt,
                                                    std::int64_t top, std::int64_t adapter);

}  // namespace quench::serve
