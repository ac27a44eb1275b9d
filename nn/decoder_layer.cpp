#include "nn/decoder_layer.h"

#include "autograd/functions.h"

namespace quench::nn {

DecoderLayer::DecoderLayer(const ModelConfig& config, const BlockSpec& block, const ParameterOptions& options)
    : input_norm_(config.hidden_size, block.attention.norm.eps, options),
      attention_(block.attention.make(config, block, options)),
      post_attention_norm_(config.hidden_size, block.feed_forward.norm.eps, options),
      feed_forward_(block.feed_forward.make(config, block, options)) {
  add_module(std::string(block.attention.norm.name), input_norm_);
  add_module("self_attn", *attention_);
  add_module(std::string(block.feed_forward.norm.name), post_attention_norm_);
  add_module(std::string(block.feed_forward.name), *feed_forward_);
}

std::pair<Variable, Variable> DecoderLayer::forward(const Variable& residual, const Variable& delta,
                                                    const ForwardContext& context) const {
  Variable stream = residual, mixed;
  if (delta.defined())
    std::tie(stream, mixed) = run_part(*attention_, input_norm_, residual, delta, context);
  else
    mixed = attention_->forward(
        autograd::rms_norm(residual, input_norm_.weight(), input_norm_.eps(), attention_->input_quant_request()),
        context);
  return run_part(*feed_forward_, post_attention_norm_, stream, mixed, context);
}

std::pair<Variable, Variable> DecoderLayer::run_part(const SubLayer& part, const RmsNorm& norm,
                                                     const Variable& residual, const Variable& delta,
                                                     const ForwardContext& context) {
  // Decode of one token: saves a kernel launch.
  if (context.cache != nullptr && delta.value().size(0) == 1 && autograd::Tape::current() == nullptr) {
    const MemoryScope scope(MemoryCategory::activations);
    const Tensor sum = Tensor::empty_like(residual.value());
    const Weight::Acquired weight = norm.weight().acquire();
    const Variable out = part.forward_unnormed(
        delta.value(), {.residual = residual.value(), .weight = weight.value(), .eps = norm.eps(), .sum = sum},
        context);
    if (out.defined()) return {Variable(sum), out};
  }
  const auto [stream, normed] =
      autograd::add_rms_norm(residual, delta, norm.weight(), norm.eps(), part.input_quant_request());
  return {stream, part.forward(normed, context)};
}

}  // namespace quench::nn
