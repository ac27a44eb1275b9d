#include "train/generation/decoder.h"

namespace quench {

Decoder::Decoder(const nn::CausalLm& model, std::int64_t capacity)
    : model_(model), cache_(model.config(), capacity, model.options().dtype, model.options().device) {
  // The whole table at once, so that decoding does not remake it token by token.
  (void)model.make_context({{0, 0, 0, capacity}}, 0);
}

Tensor Decoder::logits(const Tensor& ids) {
  const autograd::NoGrad no_grad;
  const std::int64_t tokens = ids.size(0);
  nn::ForwardContext context = model_.make_context({{0, tokens, 0, cache_.length() + tokens}}, tokens);
  context.cache = &cache_;
  const autograd::Variable hidden = model_.hidden(ids, context);
  cache_.advance(tokens);
  return model_.logits(autograd::Variable(hidden.value().narrow(0, tokens - 1, 1)));
}

Tensor Decoder::logits(std::span<const std::int32_t> ids) {
  const Device device = model_.options().device;
  const Tensor host = Tensor::empty_pinned({static_cast<std::int64_t>(ids.size())}, DType::i32, device);
  std::ranges::copy(ids, host.data<std::int32_t>());
  return logits(host.to(device));
}

}  // namespace quench
