#include "nn/decoder/decoder_layer.h"

#include "autograd/functions.h"
#include "autograd/tensor_parallel.h"
#include "core/memory/memory_part.h"

namespace quench::nn {

DecoderLayer::DecoderLayer(const ModelConfig& config, const BlockSpec& block, const ParameterOptions& options)
    : attention_{.module = block.attention.make(config, block, options)},
      feed_forward_{.module = block.feed_forward.make(config, block, options)},
      multiplier_(static_cast<float>(block.residual_multiplier)) {
  add_part(attention_, block.attention.norm, "self_attn", block.attention.post_norm, config.hidden_size, options);
  add_part(feed_forward_, block.feed_forward.norm, block.feed_forward.name, block.feed_forward.post_norm,
           config.hidden_size, options);
}

void DecoderLayer::add_part(Part& part, const NormSpec& norm, std::string_view name,
                            const std::optional<NormSpec>& post_norm, std::int64_t width,
                            const ParameterOptions& options) {
  if (!norm.name.empty()) add_module(std::string(norm.name), part.norm.emplace(width, norm.form, options));
  add_module(std::string(name), *part.module);
  if (post_norm) add_module(std::string(post_norm->name), part.post_norm.emplace(width, post_norm->form, options));
}

std::pair<Variable, Variable> DecoderLayer::forward(const Variable& residual, const Variable& delta,
                                                    const ForwardContext& context) const {
  const auto [stream, mixed] = run_part(attention_, residual, delta, context);
  return run_part(feed_forward_, stream, mixed, context);
}

Variable DecoderLayer::contribution(const Part& part, Variable out) const {
  if (part.post_norm) out = autograd::rms_norm(out, part.post_norm->weight(), part.post_norm->form());
  return multiplier_ == 1.0f ? out : autograd::scale(out, multiplier_);
}

std::pair<Variable, Variable> DecoderLayer::run_part(const Part& part, const Variable& residual, const Variable& delta,
                                                     const ForwardContext& context) const {
  const SubLayer& module = *part.module;
  const auto run_module = [&](const Variable& input) {
    const MemoryPartScope scope(&part == &attention_ ? MemoryPart::attention : MemoryPart::feed_forward);
    if (context.tensor == nullptr) return module.forward(input, context);
    const auto [rows, again] = autograd::gather_tokens(input, context.positions.numel(), *context.tensor);
    return autograd::scatter_sums(module.forward(rows, context), *context.tensor, again);
  };
  // Gathered rows are quantized by their reader.
  const autograd::QuantOutputRequest wanted =
      context.tensor == nullptr ? module.input_quant_request() : autograd::QuantOutputRequest{};
  if (!part.norm) {
    const Variable stream = delta.defined() ? autograd::add(residual, delta) : residual;
    return {stream, contribution(part, run_module(stream))};
  }
  const RmsNorm& norm = *part.norm;
  if (!delta.defined()) {
    const Variable normed = autograd::rms_norm(residual, norm.weight(), norm.form(), wanted);
    return {residual, contribution(part, run_module(normed))};
  }
  // Decode of one token: saves a kernel launch.
  if (context.tensor == nullptr && context.caches_keys() && delta.value().size(0) == 1 &&
      autograd::Tape::current() == nullptr && !norm.form().f32_weight) {
    const MemoryScope scope(MemoryCategory::activations);
    const Tensor sum = Tensor::empty_like(residual.value());
    const Weight::Acquired weight = norm.weight().acquire();
    const Variable out = module.forward_unnormed(
        delta.value(), {.residual = residual.value(), .weight = weight.value(), .eps = norm.form().eps, .sum = sum},
        context);
    if (out.defined()) return {Variable(sum), contribution(part, out)};
  }
  const auto [stream, normed] = autograd::add_rms_norm(residual, delta, norm.weight(), norm.form(), wanted);
  return {stream, contribution(part, run_module(normed))};
}

}  // namespace quench::nn
