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
