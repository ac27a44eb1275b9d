#pragma once
// Embedding whose tied head runs a linear kernel.

#include <memory>

#include "nn/modules/embedding.h"
#include "nn/modules/linear_kernel.h"

namespace quench::recipes {

// Lookup in high precision; the tied head's GEMMs are those of a linear kernel.
[[nodiscard]] std::shared_ptr<const nn::EmbeddingKernel> tied_head(std::shared_ptr<const nn::LinearKernel> head);

}  // namespace quench::recipes
