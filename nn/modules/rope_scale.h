#pragma once
// Factors of yarn RoPE scaling on cosines, sines and attention scores.

#include "nn/spec/model_config.h"

namespace quench::nn {

// Yarn's 0.1 * mscale * log(factor) + 1; 1 for factors up to 1 (Peng et al., 2023, arXiv:2309.00071, section 3.4).
[[nodiscard]] double yarn_mscale(double factor, double mscale);

// Factor on the score scale in MLA: 1 except for yarn with mscale_all_dim (Hugging Face Transformers,
// DeepseekV3Attention).
[[nodiscard]] double rope_score_factor(const RopeScaling& rope);

}  // namespace quench::nn
