#pragma once
// Embeddings that the model sees as they will be when their table is stored in few bits.

#include <memory>

#include "nn/embedding.h"
#include "recipes/qat/fake_quantizer.h"

namespace quench::recipes {

// The rows that are looked up are quantized, not the table: `format` has a scale for a row or for parts of it. An
// element that its range clips has no gradient. A head that has the same table multiplies with the quantized one.
[[nodiscard]] std::shared_ptr<const nn::EmbeddingKernel> qat_embedding(const FakeFormat& format);

}  // namespace quench::recipes
