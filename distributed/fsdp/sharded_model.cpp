#include "distributed/fsdp/sharded_model.h"

#include <algorithm>
#include <utility>

#include "core/ops/elementwise.h"
#include "nn/experts/moe.h"

namespace quench::distributed {
namespace {

// Each holds a unit's full gradients.
constexpr std::size_t kReductionsInFlight = 1;
// Units whose sums over replicas run while the next unit's gradients are computed, where a hook waits for them.
constexpr std::size_t kReplicaSumsInFlight = 1;
// Embedding and first layer: gathers not overlapped by compute.
constexpr std::size_t kLeadingUnits = 2;

std::vector<const nn::Linear*> linear_layers(nn::CausalLm& model) {
  std::vector<const nn::Linear*> layers;
  model.visit([&](const std::string&, nn::Module& module) {
    if (const auto* linear = dynamic_cast<const nn::Linear*>(&module)) layers.push_back(linear);
  });
  return layers;
}

}  // namespace

ShardedModel::ShardedModel(nn::CausalLm& model, std::shared_ptr<ProcessGroup> shard,
                           std::shared_ptr<ProcessGroup> replicate, const ShardedModelOptions& options)
    : model_(model),
      shard_(std::move(shard)),
      replicate_(std::move(replicate)),
      options_(options),
      device_(model.options().device),
      layers_(model.config().num_hidden_layers),
      all_layers_(model.config().all_layers()) {
  Backend& owner = backend(device_.type);
  const auto clock = std::make_shared<ExposedCommTimer>(device_);
  shared_ = std::make_shared<FsdpContext>(
      FsdpContext{.shard = shard_,
                  .expert_shard = options_.expert_shard != nullptr ? options_.expert_shard : shard_,
                  .device = device_,
                  .reduce_dtype = options_.reduce_dtype,
                  .keeps_whole = !options_.reshard_after_forward,
                  .weights = BufferPool(device_, MemoryCategory::parameters),
                  .gradients = BufferPool(device_, MemoryCategory::gradients),
                  .stream = owner.create_stream(device_),
                  .reached = owner.create_event(device_),
                  .clock = clock,
                  .weight_amax = std::make_shared<WeightAmax>(model_.parameters(), shard_, device_, clock)});
  const std::vector<const nn::Linear*> linear = linear_layers(model_);
  const nn::Sharding sharding{shard_->rank(), shard_->size()}, of_experts = expert_sharding();
  if (of_experts.parts > 1) share_experts();
  unit_of_layer_.resize(static_cast<std::size_t>(all_layers_));
  const std::vector<nn::LayerRange>& chunks = model_.chunks();
  for (const nn::CausalLm::Unit& part : model_.units()) {
    Unit& unit = units_.emplace_back();
    unit.parameters = part.parameters;
    // Parts around the layers belong to the chunk next to them.
    if (part.layer >= 0) unit_of_layer_[static_cast<std::size_t>(part.layer)] = units_.size() - 1;
    while (part.layer >= chunks[chunk_].end && chunk_ + 1 < chunks.size()) ++chunk_;
    unit.chunk = chunk_;
    if (sharding.count == 1) continue;
    std::vector<nn::Parameter*> gathered;
    for (nn::Parameter* parameter : unit.parameters) {
      if (parameter->sharding.is_whole())
        nn::shard_parameter(*parameter, parameter->experts > 0 ? of_experts : sharding);
      // unsharded experts need no gather
      if (parameter->padded.defined()) gathered.push_back(parameter);
      if (options_.base == nullptr) continue;
      for (nn::Parameter* stored : options_.base->parts(*parameter)) gathered.push_back(stored);
    }
    const bool is_layer = part.layer >= 0;
    // The loss reads the LM head's weight unquantized. Its gradient is reduced while activations of all layers are
    // kept.
    unit.sharded = std::make_unique<FsdpUnit>(
        part.name, gathered, is_layer && options_.gather_codes ? linear : std::vector<const nn::Linear*>(), is_layer,
        part.makes_logits && units_.size() > 1, shared_);
    // Embedding and LM head, used once per pass, reshard themselves; layers by hooks. The small final norm stays
    // gathered.
    unit.sharded->weights().set_frees_itself(!is_layer && (part.makes_logits || units_.size() == 1));
  }
  chunk_ = 0;
  const auto parts = model_.units();
  if (parts.front().layer < 0) embedding_ = &units_.front();
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (parts[i].makes_logits || (parts[i].layer < 0 && i > 0)) head_units_.push_back(&units_[i]);
  // The gradient of a head of its own is complete when the loss's backward function ends. MTP layers use the head
  // again.
  FsdpUnit* head = parts.back().makes_logits ? units_.back().sharded.get() : nullptr;
  if (head != nullptr && head->trainable() && options_.reshard_after_forward && all_layers_ == layers_) {
    gathers_after_head_ = true;
    head->when_ready([this] { layer_unit(layers_ - 1).sharded->weights().gather(Phase::backward); });
  }
  if (options_.context != nullptr && options_.context->size() > 1) {
    exchange_ = std::make_unique<ContextExchange>(options_.context, clock);
    model_.set_sequence_exchange(exchange_.get());
  }
  if (options_.tensor != nullptr && options_.tensor->size() > 1) {
    tensor_ = std::make_unique<GroupTensorExchange>(options_.tensor, clock);
    model_.set_tensor_exchange(tensor_.get());
  }
  hooks_.before_forward = [this](std::int64_t layer) { before_forward(layer); };
  hooks_.after_forward = [this](std::int64_t layer) { after_forward(layer); };
  hooks_.before_backward = [this](std::int64_t layer) { before_backward(layer); };
  hooks_.after_backward = [this](std::int64_t layer) { after_backward(layer); };
  model_.add_unit_hooks(&hooks_);
}

nn::Sharding ShardedModel::expert_sharding() const {
  if (options_.experts == nullptr || options_.experts->size() == 1) return {shard_->rank(), shard_->size()};
  const ProcessGroup &experts = *options_.experts, &same = *options_.expert_shard;
  return {same.rank(), same.size(), experts.rank(), experts.size()};
}

void ShardedModel::share_experts() {
  dispatcher_ = std::make_unique<ExpertParallelDispatcher>(options_.experts, options_.mxfp8_rows, shared_->clock);
  model_.visit([this](const std::string&, nn::Module& module) {
    if (auto* moe = dynamic_cast<nn::MoE*>(&module)) moe->set_token_dispatcher(dispatcher_.get());
  });
}

ShardedModel::~ShardedModel() {
  model_.remove_unit_hooks(&hooks_);
  if (exchange_) model_.set_sequence_exchange(nullptr);
  if (tensor_) model_.set_tensor_exchange(nullptr);
  model_.visit([](const std::string&, nn::Module& module) {
    if (auto* moe = dynamic_cast<nn::MoE*>(&module)) moe->set_token_dispatcher(nullptr);
  });
  units_.clear();
  Backend& owner = backend(device_.type);
  owner.destroy_event(shared_->reached);
  owner.destroy_stream(shared_->stream);
}

void ShardedModel::begin_forward(std::size_t chunk) {
  gather_leading(chunk);
}

void ShardedModel::begin_backward(bool last, std::size_t chunk) {
  last_ = last;
  chunk_ = chunk;
  for (Unit& unit : units_) {
    if (unit.chunk != chunk) continue;
    unit.reduced = false;
    if (unit.sharded) unit.sharded->expect_gradients();
  }
}

std::span<ShardedModel::Unit> ShardedModel::leading(std::size_t chunk) {
  const auto begin = std::ranges::find(units_, chunk, &Unit::chunk);
  const auto count = std::min(kLeadingUnits, static_cast<std::size_t>(units_.end() - begin));
  return {begin, count};
}

std::size_t ShardedModel::leading_parameters() const {
  std::size_t count = 0;
  for (std::size_t i = 0; i < std::min(kLeadingUnits, units_.size()); ++i)
    for (const nn::Parameter* parameter : units_[i].parameters) count += parameter->variable.requires_grad() ? 1 : 0;
  return count;
}

void ShardedModel::gather_leading(std::size_t chunk) {
  for (Unit& unit : leading(chunk))
    if (unit.sharded) unit.sharded->weights().gather(Phase::forward);
}

void ShardedModel::end_gathers() {
  for (Unit& unit : units_)
    if (unit.sharded) unit.sharded->weights().free();
}

ShardedModel::WholeWeights::WholeWeights(ShardedModel* sharded) : sharded_(sharded) {
  if (sharded_ == nullptr) return;
  for (Unit& unit : sharded_->units_)
    if (unit.sharded) unit.sharded->weights().hold();
  sharded_->model_.remove_unit_hooks(&sharded_->hooks_);
}

ShardedModel::WholeWeights::~WholeWeights() {
  if (sharded_ == nullptr) return;
  sharded_->model_.add_unit_hooks(&sharded_->hooks_);
  for (Unit& unit : sharded_->units_) {
    if (!unit.sharded) continue;
    unit.sharded->weights().let_go();
    if (sharded_->options_.reshard_after_forward) unit.sharded->weights().free();
  }
  sharded_->shared_->weights.trim();
}

bool ShardedModel::is_head(const Unit& unit) const noexcept {
  return std::ranges::find(head_units_, &unit) != head_units_.end();
}

std::int64_t ShardedModel::pass_end(const Unit& unit) const {
  if (!model_.ends(unit.chunk)) return model_.chunks()[unit.chunk].end;
  return autograd::Tape::current() != nullptr ? all_layers_ : layers_;
}

void ShardedModel::before_forward(std::int64_t layer) {
  const Unit& own = layer_unit(layer);
  if (!own.sharded) return;
  own.sharded->weights().gather(Phase::forward);
  // MTP layers read the embedding: gathered once for all depths and a tied head.
  if (layer >= layers_)
    embedding_->sharded->weights().set_frees_itself(layer + 1 == all_layers_ && !is_head(*embedding_));
  if (layer + 1 < pass_end(own)) {
    layer_unit(layer + 1).sharded->weights().gather(Phase::forward);
    if (layer + 1 == layers_) embedding_->sharded->weights().gather(Phase::forward);
    return;
  }
  if (!model_.ends(own.chunk)) return;
  // Memory peaks in the loss, which needs at most one layer's buffers.
  shared_->weights.trim();
  for (Unit* unit : head_units_) unit->sharded->weights().gather(Phase::forward);
}

void ShardedModel::after_forward(std::int64_t layer) {
  if (!layer_unit(layer).sharded) return;
  if (autograd::Tape::current() != nullptr && layer + 1 == all_layers_) {
    if (embedding_ != nullptr) embedding_->sharded->weights().set_frees_itself(true);  // after the head, if tied
    for (Unit* unit : head_units_) unit->sharded->attach_gradients();
  }
  if (!options_.reshard_after_forward) return;
  FsdpUnitWeights& weights = layer_unit(layer).sharded->weights();
  // The last layer's backward contents: gathered during the LM head, or after it if they replace the forward ones.
  const bool last = autograd::Tape::current() != nullptr && layer + 1 == all_layers_;
  if (last && !(gathers_after_head_ && weights.changes_contents())) return weights.gather(Phase::backward);
  weights.free();
  if (last) shared_->weights.trim();
}

void ShardedModel::before_backward(std::int64_t layer) {
  reduce_ready();
  Unit& unit = layer_unit(layer);
  if (!unit.sharded) return;
  unit.sharded->weights().gather(Phase::backward);
  unit.sharded->attach_gradients();
  if (layer > model_.chunks()[unit.chunk].begin) layer_unit(layer - 1).sharded->weights().gather(Phase::backward);
  // Decoder layer 0 and MTP layers read the embedding.
  if (layer == 0 || layer >= layers_) embedding_->sharded->attach_gradients();
}

void ShardedModel::after_backward(std::int64_t layer) {
  Unit& unit = layer_unit(layer);
  if (reduces()) begin_reduce(unit);
  end_reductions(kReductionsInFlight);
  if (unit.sharded && (last_ || options_.reshard_after_forward)) unit.sharded->weights().free();
}

void ShardedModel::reduce_ready() {
  if (!reduces()) return;
  for (Unit* unit : head_units_)
    if (unit->chunk == chunk_ && unit->sharded && unit->sharded->trainable() && unit->sharded->gradients_ready())
      begin_reduce(*unit);
}

void ShardedModel::begin_reduce(Unit& unit) {
  if (std::exchange(unit.reduced, true)) return;
  if (!unit.sharded || !unit.sharded->trainable()) {  // experts of expert parallelism may be trained
    if (last_) begin_replica_sum(unit);
    return;
  }
  unit.sharded->begin_reduce();
  reducing_.push_back(&unit);
}

void ShardedModel::end_reductions(std::size_t keep) {
  for (; reducing_.size() > keep; reducing_.pop_front()) {
    reducing_.front()->sharded->end_reduce();
    if (last_) begin_replica_sum(*reducing_.front());
  }
}

void ShardedModel::begin_replica_sum(Unit& unit) {
  Works& works = replica_sums_.emplace_back(&unit, Works()).second;
  if (replicate_->size() == 1) return end_replica_sums(0);
  Backend& owner = backend(device_.type);
  for (nn::Parameter* parameter : unit.parameters) {
    const auto& gradient = parameter->variable.gradient();
    if (gradient != nullptr && !gradient->has_value()) gradient->target().tensor.zero();
  }
  owner.record(shared_->reached, current_stream(device_));
  owner.wait(shared_->stream, shared_->reached);
  {
    const StreamGuard guard(shared_->stream);
    for (nn::Parameter* parameter : unit.parameters)
      if (parameter->variable.requires_grad())
        works.push_back(replicate_->all_reduce(parameter->variable.grad(), ReduceOp::sum, parameter->name));
  }
  if (when_summed_) end_replica_sums(kReplicaSumsInFlight);
}

void ShardedModel::end_replica_sums(std::size_t keep) {
  for (; replica_sums_.size() > keep; replica_sums_.pop_front()) {
    auto& [unit, works] = replica_sums_.front();
    shared_->clock->wait(works);
    if (when_summed_) when_summed_(unit->parameters);
  }
}

void ShardedModel::end_backward() {
  if (!reduces()) return;
  for (Unit& unit : units_)
    if (unit.chunk == chunk_) begin_reduce(unit);
  end_reductions(0);
  shared_->gradients.trim();
  end_replica_sums(0);
  if (last_ && tensor_) sum_shared_gradients();
}

void ShardedModel::sum_shared_gradients() {
  std::vector<Tensor> gradients;
  std::int64_t elements = 0;
  for (const Unit& unit : units_)
    for (const nn::Parameter* parameter : unit.parameters) {
      if (unit.chunk != chunk_ || !parameter->variable.requires_grad() || !parameter->slice.is_shared()) continue;
      const auto& gradient = parameter->variable.gradient();
      if (!gradient->has_value()) gradient->target().tensor.zero();
      gradients.push_back(gradient->value());
      elements += gradients.back().numel();
    }
  if (elements == 0) return;
  // One operation for all of them.
  const MemoryScope scope(MemoryCategory::gradients);
  const Tensor sums = Tensor::empty({elements}, DType::f32, device_);
  const auto for_each = [&](const std::function<void(const Tensor& gradient, const Tensor& place)>& work) {
    std::int64_t begin = 0;
    for (const Tensor& gradient : gradients) {
      const Tensor flat = gradient.view({gradient.numel()});
      if (flat.numel() > 0) work(flat, sums.narrow(0, begin, flat.numel()));
      begin += flat.numel();
    }
  };
  for_each([](const Tensor& gradient, const Tensor& place) { cast({gradient, place}); });
  std::vector<Work> works;
  works.push_back(options_.tensor->all_reduce(sums, ReduceOp::sum, "gradients of whole weights"));
  shared_->clock->wait(works);
  for_each([](const Tensor& gradient, const Tensor& place) { cast({place, gradient}); });
}

void ShardedModel::sum_squared_norm(const Tensor& norm) {
  if (shard_->size() > 1) shard_->all_reduce(norm, ReduceOp::sum, "gradient norm").wait();
  if (tensor_) options_.tensor->all_reduce(norm, ReduceOp::sum, "gradient norm").wait();
}

}  // namespace quench::distributed
