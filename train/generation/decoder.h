#pragma once
// Passes of a model over one sequence that grows, with a key-value cache.

#include <span>

#include "nn/causal_lm.h"

namespace quench {

class Decoder {
 public:
  // Room for `capacity` tokens. The model outlives the decoder.
  Decoder(const nn::CausalLm& model, std::int64_t capacity);

  // Logits [1,V] f32, on the model's device, of the last of `ids` (i32 [N]) behind the tokens already there. Queued: on
  // a GPU the host goes on.
  [[nodiscard]] Tensor logits(const Tensor& ids);
  // The same for ids on the host.
  [[nodiscard]] Tensor logits(std::span<const std::int32_t> ids);

 private:
  const nn::CausalLm& model_;
  nn::KvCache cache_;
};

}  // namespace quench
