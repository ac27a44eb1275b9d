#include "nn/decoder_layer.h"

namespace quench::nn {

DecoderLayer::DecoderLayer(const ModelConfig& config, std::int64_t layer, const ParameterOptions& options)
    : layer_(layer),
      input_norm_(config.hidden_size, config.rms_norm_eps, options),
      attention_(config, layer, options),
      post_attention_norm_(config.hidden_size, config.rms_norm_eps, options),
      mlp_(config, options) {
  add_module("input_layernorm", input_norm_);
  add_module("self_attn", attention_);
  add_module("post_attention_layernorm", post_attention_norm_);
  add_module("mlp", mlp_);
}

std::pair<Variable, Variable> DecoderLayer::forward(const Variable& residual, const Variable& delta,
                                                    const ForwardContext& context) const {
  Variable stream = residual;
  Variable normed;
  const autograd::QuantRequest wanted = attention_.input_request();
  if (delta.defined()) {
    std::tie(stream, normed) = autograd::add_rms_norm(residual, delta, input_norm_.weight(), input_norm_.eps(), wanted);
  } else {
    normed = autograd::rms_norm(residual, input_norm_.weight(), input_norm_.eps(), wanted);
  }
  const Variable mixed = attention_.forward(normed, context);
  std::tie(stream, normed) = autograd::add_rms_norm(stream, mixed, post_attention_norm_.weight(),
                                                    post_attention_norm_.eps(), mlp_.input_request());
  return {stream, mlp_.forward(normed, context.activations.of(layer_) == autograd::LargestActivation::recomputed)};
}

}  // namespace quench::nn
