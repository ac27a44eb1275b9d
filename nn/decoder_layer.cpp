#include "nn/decoder_layer.h"

#include "autograd/functions.h"
#include "nn/models/table.h"

namespace quench::nn {
namespace {

const ModelFamily& family_of(const ModelConfig& config) {
  const ModelFamily* family = find_model_family(config.architecture);
  QUENCH_CHECK(family != nullptr, "decoder layer: no model family is called '{}'", config.architecture);
  return *family;
}

}  // namespace

DecoderLayer::DecoderLayer(const ModelConfig& config, std::int64_t layer, const ParameterOptions& options)
    : input_norm_(config.hidden_size, config.rms_norm_eps, options),
      attention_(family_of(config).attention(config, layer, options)),
      post_attention_norm_(config.hidden_size, config.rms_norm_eps, options),
      feed_forward_(family_of(config).feed_forward(config, layer, options)) {
  add_module("input_layernorm", input_norm_);
  add_module("self_attn", *attention_);
  add_module("post_attention_layernorm", post_attention_norm_);
  add_module(std::string(config.feed_forward), *feed_forward_);
}

std::pair<Variable, Variable> DecoderLayer::forward(const Variable& residual, const Variable& delta,
                                                    const ForwardContext& context) const {
  Variable stream = residual;
  Variable normed;
  const autograd::QuantRequest wanted = attention_->input_request();
  if (delta.defined()) {
    std::tie(stream, normed) = autograd::add_rms_norm(residual, delta, input_norm_.weight(), input_norm_.eps(), wanted);
  } else {
    normed = autograd::rms_norm(residual, input_norm_.weight(), input_norm_.eps(), wanted);
  }
  const Variable mixed = attention_->forward(normed, context);
  std::tie(stream, normed) = autograd::add_rms_norm(stream, mixed, post_attention_norm_.weight(),
                                                    post_attention_norm_.eps(), feed_forward_->input_request());
  return {stream, feed_forward_->forward(normed, context)};
}

}  // namespace quench::nn
