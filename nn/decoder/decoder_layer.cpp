#include "nn/decoder/decoder_layer.h"

#include <algorithm>

#include "autograd/functions.h"
#include "autograd/regions/row_tiles.h"
#include "autograd/tensor_parallel.h"
#include "core/memory/memory_part.h"

namespace quench::nn {
namespace {

// ForwardContext::counted_rows of the tokens [first, first + count), numbered from `first`.
autograd::TokenPermutation counted_rows(const ForwardContext& whole, std::int64_t first, std::int64_t count,
                                        Device device) {
  if (!whole.counted_rows.pairs.defined()) return {};
  std::vector<std::int32_t> rows;
  for (const SequenceRange& sequence : whole.sequences) {
    const std::int64_t end = std::min(sequence.q_begin + sequence.q_length, first + count);
    for (std::int64_t row = std::max(sequence.q_begin, first); row < end; ++row)
      rows.push_back(static_cast<std::int32_t>(row - first));
  }
  if (std::ssize(rows) == count) return {};
  return autograd::select_tokens(rows, count, device);
}

}  // namespace

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
  const bool tiled = is_tiled(part, residual.shape()[0], context);
  const auto run = [&](const Variable& input) { return contribution(part, run_module(part, input, context, tiled)); };
  if (!part.norm) {
    const Variable stream = delta.defined() ? autograd::add(residual, delta) : residual;
    return {stream, run(stream)};
  }
  const RmsNorm& norm = *part.norm;
  // Tiles, and readers of gathered rows, quantize their rows.
  const autograd::QuantOutputRequest wanted =
      tiled || context.tensor != nullptr ? autograd::QuantOutputRequest() : module.input_quant_request();
  if (!delta.defined()) return {residual, run(autograd::rms_norm(residual, norm.weight(), norm.form(), wanted))};
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
  return {stream, run(normed)};
}

bool DecoderLayer::is_tiled(const Part& part, std::int64_t rows, const ForwardContext& context) const {
  if (context.tensor != nullptr) rows = context.positions.numel();
  return &part == &feed_forward_ && context.mlp_tile_tokens > 0 && rows > context.mlp_tile_tokens &&
         !context.caches_keys() && part.module->is_rowwise();
}

Variable DecoderLayer::run_module(const Part& part, const Variable& input, const ForwardContext& context,
                                  bool tiled) const {
  const MemoryPartScope scope(&part == &attention_ ? MemoryPart::attention : MemoryPart::feed_forward);
  if (context.tensor == nullptr) return run_rows(part, input, context, tiled);
  const auto [rows, again] = autograd::gather_tokens(input, context.positions.numel(), *context.tensor);
  return autograd::scatter_sums(run_rows(part, rows, context, tiled), *context.tensor, again);
}

Variable DecoderLayer::run_rows(const Part& part, const Variable& input, const ForwardContext& context,
                                bool tiled) const {
  const SubLayer& module = *part.module;
  if (!tiled) return module.forward(input, context);
  QUENCH_CHECK(!context.router_terms.wanted(), "router losses are means over all tokens: no tiles of them");
  // Norm and multiplier after the module read its value.
  const bool unread = context.layer_value_unread && context.tensor == nullptr && !part.post_norm && multiplier_ == 1.0f;
  return autograd::in_row_tiles(
      [&module, whole = context](const Variable& x, std::int64_t first, bool again) {
        ForwardContext own = whole;
        own.counted_rows = counted_rows(whole, first, x.shape()[0], x.device());
        own.activations = {};  // a tile is recomputed as a whole
        if (again) own.expert_load = nullptr;
        return module.forward(x, own);
      },
      input, {.rows = context.mlp_tile_tokens, .value_needed = !unread});
}

}  // namespace quench::nn
