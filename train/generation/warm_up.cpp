#include "train/generation/warm_up.h"

#include <algorithm>
#include <vector>

#include "core/ops/argmax.h"
#include "core/tensor/host_copy.h"
#include "train/generation/decoder.h"

namespace quench {

void warm_up_generation(const nn::CausalLm& model, std::int64_t tokens) {
  const std::int64_t limit = model.config().max_position_embeddings - 1;
  if (tokens < 1 || limit < 1) return;
  const std::vector<std::int32_t> prompt(static_cast<std::size_t>(std::min(tokens, limit)), 0);
  Decoder decoder(model, static_cast<std::int64_t>(prompt.size()) + 1);
  const Tensor logits = decoder.logits(prompt);
  const Tensor found = Tensor::zeros({2}, DType::i32, logits.device());
  argmax({.x = logits, .index = found.narrow(0, 0, 1), .first_nonfinite = found.narrow(0, 1, 1)});
  (void)HostCopy(decoder.logits(std::span(prompt).first(1))).get();
}

}  // namespace quench
