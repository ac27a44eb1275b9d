#include "nn/decoder/causal_lm.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ranges>

#include "autograd/recompute.h"
#include "autograd/tensor_parallel.h"
#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"
#include "nn/attention/shared_prefix.h"
#include "nn/decoder/logits_form.h"
#include "nn/modules/initialize.h"
#include "nn/spec/tensor_parallel.h"

namespace quench::nn {

using autograd::Recompute;
using autograd::Tape;

namespace {

using PairRegion =
    std::function<std::pair<Variable, Variable>(const std::vector<Variable>& in, const ForwardContext& context)>;

// Outputs of a region under full recompute.
std::pair<Variable, Variable> recomputed_pair(const PairRegion& region, std::vector<Variable> inputs,
                                              const ForwardContext& context,
                                              const autograd::RecomputeOptions& options = {}) {
  auto outputs = autograd::recompute(
      [region, context = context](const std::vector<Variable>& in) mutable {
        auto [stream, update] = region(in, context);
        context.expert_load = nullptr;  // not counted again in the recompute
        context.layer_value_unread = true;
        return std::vector<Variable>{stream, update};
      },
      std::move(inputs), options);
  return {outputs[0], outputs[1]};
}

void begin_unit(std::int64_t unit, const ForwardContext& context) {
  for (const UnitHooks* hooks : context.hooks) {
    if (hooks->before_forward) hooks->before_forward(unit);
    // The tape runs in reverse: the first mark runs last.
    if (hooks->after_backward) Tape::mark([hooks, unit] { hooks->after_backward(unit); });
  }
}

void end_unit(std::int64_t unit, const ForwardContext& context) {
  for (const UnitHooks* hooks : context.hooks | std::views::reverse) {
    if (hooks->before_backward) Tape::mark([hooks, unit] { hooks->before_backward(unit); });
    if (hooks->after_forward) hooks->after_forward(unit);
  }
}

// i32 [tokens] in pinned memory: a sequence's positions count from its element of `first`, or from 0; padding: 0.
Tensor position_rows(std::span<const SequenceRange> sequences, std::span<const std::int64_t> first, std::int64_t tokens,
                     Device device) {
  const Tensor rows = Tensor::empty_pinned({tokens}, DType::i32, device);
  auto* row = rows.data<std::int32_t>();
  std::fill(row, row + tokens, 0);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const SequenceRange& s = sequences[i];
    const std::int64_t begin = (first.empty() ? 0 : first[i]) + s.k_length - s.q_length;
    std::iota(row + s.q_begin, row + s.q_begin + s.q_length, static_cast<std::int32_t>(begin));
  }
  return rows;
}

}  // namespace

CausalLm::Body::Body(const ModelConfig& config, const ParameterOptions& options,
                     const std::vector<LayerRange>& chunks) {
  const bool starts = chunks.front().begin == 0, ends = chunks.back().end == config.num_hidden_layers;
  const auto add_table = [&] {
    const std::int64_t rows = config.vocab_size / options.tensor.count;
    embed_tokens.emplace(rows, config.hidden_size, options, config.initializer_range);
    embed_tokens->weight().stage_copy = !starts;
    add_module("embed_tokens", *embed_tokens);
  };
  if (starts) add_table();
  for (const BlockSpec& block : config.blocks) {
    std::unique_ptr<DecoderLayer>& layer = layers.emplace_back();
    if (std::ranges::none_of(chunks, [&](const LayerRange& chunk) { return chunk.contains(block.layer); })) continue;
    layer = std::make_unique<DecoderLayer>(config, block, options);
    add_module("layers." + std::to_string(block.layer), *layer);
  }
  for (const BlockSpec& block : config.mtp_blocks()) {
    mtp.push_back(std::make_unique<MtpLayer>(config, block, options));
    add_module("layers." + std::to_string(block.layer), *mtp.back());
  }
  if (!ends) return;
  norm.emplace(config.hidden_size, config.stream.norm.form, options);
  add_module("norm", *norm);
  if (!starts && config.tie_word_embeddings) add_table();
}

CausalLm::CausalLm(const ModelConfig& config, const ParameterOptions& options, std::vector<LayerRange> chunks)
    : config_(config),
      stream_(config.stream),
      options_(options),
      chunks_(chunks.empty() ? std::vector<LayerRange>{{0, config.num_hidden_layers}} : std::move(chunks)),
      model_(config, options, chunks_),
      rotations_(config) {
  const std::string fault = tensor_parallel_fault(config, options.tensor.count);
  QUENCH_CHECK_AS(ErrorCode::unsupported, fault.empty(), "{}", fault);
  QUENCH_CHECK_AS(ErrorCode::unsupported, is_whole() || config.mtp.layers == 0, "MTP layers in chunks of a model");
  options_.deferred = false;
  add_module("model", model_);
  if (!config.tie_word_embeddings && ends(chunks_.size() - 1)) {
    lm_head_.emplace(
        config.hidden_size, config.vocab_size / options.tensor.count,
        LinearOptions{.init_std = config.initializer_range, .parameters = options, .split = TensorSplit::rows});
    add_module(std::string(kHeadName), *lm_head_);
  }
  assign_names();
}

Weight CausalLm::head_weight() const {
  return lm_head_ ? lm_head_->kernel().read_weight(lm_head_->weight()).weight()
                  : model_.embed_tokens->read_weight().weight();
}

Parameter* CausalLm::shared_table() noexcept {
  return config_.tie_word_embeddings && !is_whole() && model_.embed_tokens ? &model_.embed_tokens->weight() : nullptr;
}

std::unique_ptr<HeadGemms> CausalLm::head_gemms() const {
  std::unique_ptr<HeadGemms> gemms =
      lm_head_ ? lm_head_->kernel().head_gemms(lm_head_->weight()) : model_.embed_tokens->head_gemms();
  return with_logits_form(std::move(gemms), stream_, head_weight());
}

Variable CausalLm::scaled_embedding(const Variable& rows) const {
  const auto factor = static_cast<float>(stream_.embedding_scale);
  if (factor == 1.0f) return rows;
  const bool rounds = stream_.embedding_scale_rounded && rows.value().dtype() == DType::bf16;
  return autograd::scale(rows, rounds ? static_cast<float>(bfloat16(factor)) : factor);
}

CausalLm::Pair CausalLm::run_layer(std::size_t index, Variable residual, Variable delta,
                                   const ForwardContext& context) const {
  const DecoderLayer& layer = *model_.layers[index];
  if (context.recompute != Recompute::full || Tape::current() == nullptr)
    return layer.forward(residual, delta, context);
  // The region saves one hidden state, so the pair is summed first, and freed.
  Variable input = delta.defined() ? autograd::add(residual, delta) : residual;
  residual = delta = Variable();
  return recomputed_pair([&layer](const std::vector<Variable>& in,
                                  const ForwardContext& of) { return layer.forward(in[0], Variable(), of); },
                         {std::move(input)}, context,
                         {.keeps_attention = context.activations.keeps_attention(static_cast<std::int64_t>(index))});
}

CausalLm::Pair CausalLm::run_mtp(const MtpLayer& layer, const Variable& embedding, const Variable& hidden,
                                 const ForwardContext& context) {
  if (context.recompute != Recompute::full || Tape::current() == nullptr)
    return layer.forward_depth(embedding, hidden, context);
  return recomputed_pair([&layer](const std::vector<Variable>& in,
                                  const ForwardContext& of) { return layer.forward_depth(in[0], in[1], of); },
                         {embedding, hidden}, context);
}

Variable CausalLm::first_hidden(const Tensor& ids, const ForwardContext& context) const {
  QUENCH_CHECK(
      options_.tensor.count == 1 || (context.tensor != nullptr && context.tensor->size() == options_.tensor.count),
      "a slice of 1 in {} of a model, without the other slices", options_.tensor.count);
  if (context.tensor == nullptr) return scaled_embedding(model_.embed_tokens->forward(ids));
  return scaled_embedding(
      autograd::embedding_of_parts(model_.embed_tokens->read_weight().weight(), ids, *context.tensor));
}

Variable CausalLm::hidden(const Tensor& ids, const ForwardContext& context) const {
  const LayerRange& chunk = chunks_.at(context.chunk);
  QUENCH_CHECK(starts(context.chunk) != context.chunk_input.defined(), "layers from {} on: hidden states before them",
               chunk.begin);
  Variable residual = starts(context.chunk) ? first_hidden(ids, context) : context.chunk_input;
  Variable delta;
  autograd::ActivationOffloader* offloader = Tape::current() != nullptr ? Tape::current()->offloader() : nullptr;
  for (std::int64_t unit = chunk.begin; unit < chunk.end; ++unit) {
    if (offloader != nullptr) offloader->begin_forward(unit);
    begin_unit(unit, context);
    std::tie(residual, delta) =
        run_layer(static_cast<std::size_t>(unit), std::move(residual), std::move(delta), context);
    if (offloader != nullptr) Tape::mark([offloader, unit] { offloader->begin_backward(unit); });
    end_unit(unit, context);
    if (context.layer_outputs != nullptr && context.layer_outputs->takes(unit)) {
      residual = context.layer_outputs->take(unit, autograd::add(residual, delta));
      delta = Variable();
    }
  }
  if (offloader != nullptr) offloader->end_forward();
  if (!ends(context.chunk)) return delta.defined() ? autograd::add(residual, delta) : residual;
  const RmsNorm& norm = *model_.norm;
  const Variable normed = delta.defined() ? autograd::add_rms_norm(residual, delta, norm.weight(), norm.form()).second
                                          : autograd::rms_norm(residual, norm.weight(), norm.form());
  return context.tensor == nullptr ? normed : autograd::gather_tokens(normed, ids.size(0), *context.tensor).rows;
}

std::vector<Variable> CausalLm::mtp_hidden(Variable hidden, std::span<const MtpInput> inputs,
                                           const ForwardContext& context) const {
  QUENCH_CHECK(inputs.size() == model_.mtp.size(), "mtp_hidden: tokens of {} depths for {} MTP layers", inputs.size(),
               model_.mtp.size());
  std::vector<Variable> all;
  ForwardContext own = context;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const MtpLayer& layer = *model_.mtp[i];
    const std::int64_t unit = config_.num_hidden_layers + static_cast<std::int64_t>(i);
    begin_unit(unit, context);
    const Variable embedding = scaled_embedding(model_.embed_tokens->forward(inputs[i].ids));
    own.counted_rows = inputs[i].rows;
    own.part = inputs[i].part;
    const auto [residual, delta] = run_mtp(layer, embedding, hidden, own);
    const RmsNorm& norm = layer.head_norm();
    hidden = autograd::add_rms_norm(residual, delta, norm.weight(), norm.form()).second;
    end_unit(unit, context);
    all.push_back(hidden);
  }
  return all;
}

Variable CausalLm::loss(const Tensor& ids, const Tensor& labels, const ForwardContext& context, float scale,
                        const LmHeadLossOptions& options, Tensor* losses) const {
  return head_loss(hidden(ids, context), labels, scale, options, losses);
}

Variable CausalLm::head_loss(const Variable& hidden_states, const Tensor& labels, float scale,
                             const LmHeadLossOptions& options, Tensor* losses, LogitsLoss* rows) const {
  const std::unique_ptr<HeadGemms> gemms = head_gemms();
  if (tensor_exchange_ == nullptr)
    return autograd::lm_head_loss(hidden_states, head_weight(), labels, scale, options, losses, gemms.get(), rows);
  QUENCH_CHECK_AS(ErrorCode::unsupported, rows == nullptr, "a loss of whole logits, with the vocabulary in {} parts",
                  tensor_exchange_->size());
  autograd::CrossEntropyOfParts parts(*tensor_exchange_);
  return autograd::lm_head_loss(hidden_states, head_weight(), labels, scale, options, losses, gemms.get(), &parts);
}

Tensor CausalLm::logits(const Variable& hidden_states) const {
  const MemoryScope scope(MemoryCategory::activations);
  const Tensor x = hidden_states.value();
  const std::int64_t vocab = head_weight().shape()[0];
  const Tensor result = Tensor::empty({x.size(0), vocab}, DType::f32, x.device());
  if (const std::unique_ptr<HeadGemms> gemms = head_gemms())
    gemms->logits(x, result);
  else
    gemm({.a = x, .b = head_weight().acquire().value(), .c = result, .transpose_b = true});
  if (tensor_exchange_ == nullptr) return result;
  const Tensor parts = tensor_exchange_->gather(result);
  const Tensor whole = Tensor::empty({x.size(0), config_.vocab_size}, DType::f32, x.device());
  for (std::int64_t part = 0; part < tensor_exchange_->size(); ++part)
    copy_rows({.from = parts.narrow(0, part * x.size(0), x.size(0)), .to = whole.narrow(1, part * vocab, vocab)});
  return whole;
}

KvCache CausalLm::make_cache(std::int64_t capacity) const {
  ModelConfig own = config_;
  for (BlockSpec& block : own.blocks) block.attention.kv_heads /= options_.tensor.count;
  return KvCache(own, capacity, options_.dtype, options_.device, kv_cache_);
}

ForwardContext CausalLm::make_context(std::vector<SequenceRange> sequences, std::int64_t tokens) const {
  const Tensor positions = position_rows(sequences, {}, tokens, options_.device);
  return make_context(std::move(sequences), positions);
}

ForwardContext CausalLm::make_context(std::vector<SequenceRange> sequences, const Tensor& positions) const {
  LayerRotations::Rows rotations = rotations_.rows(sequences, options_.device);
  const MemoryScope scope(MemoryCategory::data);
  ForwardContext context{.rotations = std::move(rotations.tables), .positions = positions.to(options_.device)};
  context.rotation_rows =
      rotations.first.empty()
          ? context.positions
          : position_rows(sequences, rotations.first, positions.numel(), options_.device).to(options_.device);
  context.sequences = std::move(sequences);
  context.hooks = unit_hooks_;
  context.tensor = tensor_exchange_;
  context.mlp_tile_tokens = mlp_tile_tokens_;
  return context;
}

ForwardContext CausalLm::make_context(std::vector<SequenceRange> sequences, std::span<const SharedPrefix> prefixes,
                                      const Tensor& positions) const {
  if (prefixes.empty()) return make_context(std::move(sequences), positions);
  const autograd::KeyRows keys = expand_prefixes(sequences, prefixes, positions.numel(), options_.device);
  ForwardContext context = make_context(std::move(sequences), positions);
  context.keys = keys;
  return context;
}

std::vector<CausalLm::Unit> CausalLm::units() {
  std::vector<Unit> all;
  const auto add_table = [&] {
    all.push_back({"model.embed_tokens", -1, model_.norm && !lm_head_, model_.embed_tokens->parameters()});
  };
  if (starts(0)) add_table();
  for (std::size_t i = 0; i < model_.layers.size(); ++i)
    if (model_.layers[i])
      all.push_back(
          {fmt::format("model.layers.{}", i), static_cast<std::int64_t>(i), false, model_.layers[i]->parameters()});
  for (std::size_t i = 0; i < model_.mtp.size(); ++i) {
    const std::int64_t layer = config_.num_hidden_layers + static_cast<std::int64_t>(i);
    all.push_back({fmt::format("model.layers.{}", layer), layer, false, model_.mtp[i]->parameters()});
  }
  if (!model_.norm) return all;
  Unit& last = all.emplace_back(Unit{"model.norm", -1, false, model_.norm->parameters()});
  for (const auto& head : added_heads_) last.parameters.push_back(&head->weight);
  if (lm_head_) all.push_back({std::string(kHeadName), -1, true, lm_head_->parameters()});
  if (!starts(0) && !lm_head_) add_table();
  return all;
}

Parameter& CausalLm::add_head(const std::string& name, std::int64_t outputs, const ParameterOptions& options) {
  const float init_std = 1.0f / std::sqrt(static_cast<float>(config_.hidden_size + 1));
  auto head = std::make_unique<AddedHead>(
      make_parameter({outputs, config_.hidden_size}, options, Initializer::normal, init_std));
  add_module(name, *head);
  head->assign_names(name + ".");
  head->weight.added = true;
  return added_heads_.emplace_back(std::move(head))->weight;
}

void CausalLm::untie_head() {
  if (lm_head_) return;
  const Parameter& table = model_.embed_tokens->weight();
  QUENCH_CHECK(table.sharding.is_whole(), "untie_head: a sharded model");
  lm_head_.emplace(config_.hidden_size, config_.vocab_size,
                   LinearOptions{.init_std = config_.initializer_range, .parameters = options_});
  add_module(std::string(kHeadName), *lm_head_);
  lm_head_->assign_names(std::string(kHeadName) + ".");
  Tensor head = lm_head_->weight().variable.value();
  head.copy_from(table.variable.value());
  lm_head_->weight().mark_changed();
  config_.tie_word_embeddings = false;
}

void CausalLm::initialize(std::uint64_t seed, const ParameterFilled& filled) {
  for (Parameter* parameter : parameters()) {
    materialize(*parameter);
    initialize_parameter(*parameter, seed);
    if (filled) filled(*parameter);
  }
}

bool is_part_of_model(const Module& root) {
  const auto* model = dynamic_cast<const CausalLm*>(&root);
  return model != nullptr && !model->is_whole();
}

}  // namespace quench::nn
