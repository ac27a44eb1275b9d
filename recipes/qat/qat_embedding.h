#pragma once
// Embedding with fake-quantized rows.

#include <memory>

#include "nn/modules/embedding.h"
#include "recipes/qat/fake_quantizer.h"

namespace quench::recipes {

// Fake-quantizes the looked-up rows, with scales per row or group. Clipped elements get no gradient. A tied head uses
// the fake-quantized table.
[[nodiscard]] std::shared_ptr<const nn::EmbeddingKernel> qat_embedding(const FakeFormat& format);

}  // namespace quench::recipes
