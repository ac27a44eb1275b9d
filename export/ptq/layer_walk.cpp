#include "export/ptq/layer_walk.h"

#include <algorithm>

#include "autograd/functions.h"

namespace quench {
namespace {

constexpr std::size_t kTokensOfPass = 4096;  // per pass, or one sequence

}  // namespace

LayerWalk::LayerWalk(nn::CausalLm& model, std::span<const std::vector<std::int32_t>> sequences, bool reference)
    : model_(model) {
  const nn::Parameter* table = nullptr;
  model.visit([&](const std::string& name, nn::Module& module) {
    // Without MTP layers, which follow.
    if (auto* layer = dynamic_cast<nn::DecoderLayer*>(&module);
        layer != nullptr && std::ssize(layers_) < model.config().num_hidden_layers)
      layers_.push_back(layer);
    if (auto* norm = dynamic_cast<nn::RmsNorm*>(&module); norm != nullptr && name == "model.norm") norm_ = norm;
  });
  for (const nn::Parameter* parameter : model.parameters())
    if (parameter->name == "model.embed_tokens.weight") table = parameter;
  QUENCH_CHECK(table != nullptr && norm_ != nullptr, "LayerWalk: the model has no embedding or no final norm");
  const autograd::NoGrad no_grad;
  const MemoryScope scope(MemoryCategory::activations);
  for (std::size_t first = 0; first < sequences.size();) {
    std::vector<SequenceRange> ranges;
    std::vector<std::int32_t> ids;
    do {
      const auto begin = static_cast<std::int64_t>(ids.size());
      const auto length = static_cast<std::int64_t>(sequences[first].size());
      ranges.push_back({begin, length, begin, length});
      places_.push_back({passes_.size(), begin, length});
      ids.insert(ids.end(), sequences[first].begin(), sequences[first].end());
      ++first;
    } while (first < sequences.size() && ids.size() + sequences[first].size() <= kTokensOfPass);
    const auto tokens = static_cast<std::int64_t>(ids.size());
    const Tensor host = Tensor::from_values<std::int32_t>({tokens}, ids);
    const autograd::Variable rows = autograd::embedding(table->weight(), host.to(model.options().device));
    const Tensor hidden = model.scaled_embedding(rows).value();
    passes_.push_back({model.make_context(std::move(ranges), tokens), hidden, reference ? hidden : Tensor()});
  }
}

autograd::Variable LayerWalk::run(const Tensor& hidden, const nn::ForwardContext& context) const {
  QUENCH_CHECK(next_ < layers_.size(), "LayerWalk: there is no further layer");
  const auto [residual, delta] = layers_[next_]->forward(autograd::Variable(hidden), {}, context);
  return autograd::add(residual, delta);
}

void LayerWalk::observe(InputObservers& observers) const {
  const autograd::NoGrad no_grad;
  const MemoryScope scope(MemoryCategory::activations);
  for (const Pass& pass : passes_) {
    std::vector<std::int64_t> first;
    for (const SequenceRange& one : pass.context.sequences) first.push_back(one.q_begin);
    observers.begin_pass(pass.hidden.size(0), std::move(first));
    (void)run(pass.hidden, pass.context);
  }
  observers.begin_pass(0, {});
}

void LayerWalk::advance() {
  const autograd::NoGrad no_grad;
  const MemoryScope scope(MemoryCategory::activations);
  for (Pass& pass : passes_) pass.hidden = run(pass.hidden, pass.context).value();
  ++next_;
}

void LayerWalk::advance_reference() {
  const autograd::NoGrad no_grad;
  const MemoryScope scope(MemoryCategory::activations);
  for (Pass& pass : passes_) pass.reference = run(pass.reference, pass.context).value();
}

LayerWalk::Batch LayerWalk::batch(std::span<const std::int64_t> sequences) const {
  const MemoryScope scope(MemoryCategory::activations);
  std::vector<SequenceRange> ranges;
  std::int64_t tokens = 0;
  for (const std::int64_t sequence : sequences) {
    const std::int64_t length = places_.at(static_cast<std::size_t>(sequence)).length;
    ranges.push_back({tokens, length, tokens, length});
    tokens += length;
  }
  const Tensor& like = passes_.front().hidden;
  const Shape shape{tokens, like.size(1)};
  Batch batch{model_.make_context(ranges, tokens), Tensor::empty(shape, like.dtype(), like.device()),
              Tensor::empty(shape, like.dtype(), like.device())};
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const Place& place = places_[static_cast<std::size_t>(sequences[i])];
    const Pass& pass = passes_[place.pass];
    batch.inputs.narrow(0, ranges[i].q_begin, place.length).copy_from(pass.hidden.narrow(0, place.begin, place.length));
    batch.targets.narrow(0, ranges[i].q_begin, place.length)
        .copy_from(pass.reference.narrow(0, place.begin, place.length));
  }
  return batch;
}

autograd::Variable LayerWalk::forward(const Batch& batch) const {
  return run(batch.inputs, batch.context);
}

std::vector<Tensor> LayerWalk::final_states() const {
  QUENCH_CHECK(next_ == layers_.size(), "LayerWalk: {} layers are still to come", layers_.size() - next_);
  const autograd::NoGrad no_grad;
  std::vector<Tensor> states;
  for (const Pass& pass : passes_)
    states.push_back(autograd::rms_norm(autograd::Variable(pass.hidden), norm_->weight(), norm_->form()).value());
  return states;
}

}  // namespace quench
