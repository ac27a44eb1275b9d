#pragma once
// Stored weights next to the parameters of a model.

#include <filesystem>
#include <functional>

#include "export/formats/stored_weights.h"
#include "nn/decoder/causal_lm.h"

namespace quench {

// Rows by token: embedding, untied head.
[[nodiscard]] bool is_vocabulary(const nn::ParameterPiece& piece);

// Throws corrupt naming all missing, extra and misshaped tensors. `may_grow`: is_vocabulary() ones may have fewer rows.
// `is_new`: parameters that the folder need not have. Warns of scales of a quantized KV cache, which are ignored.
void check_inventory(nn::CausalLm& model, const StoredWeights& weights, const std::filesystem::path& folder,
                     bool may_grow, const std::function<bool(const nn::Parameter&)>& is_new);

}  // namespace quench
