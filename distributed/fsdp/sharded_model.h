#pragma once
// FSDP / HSDP on a replicate x shard mesh (Rajbhandari et al. 2020, ZeRO; Zhao et al. 2023, PyTorch FSDP). Parameters,
// gradients and optimizer state are sharded; each rank trains on its own sequences, or its parts of those that it
// shares with the ranks of a context group.
//
// Units (nn::CausalLm::units) are all-gathered one ahead and resharded after use. Gradients, sums over all ranks'
// sequences, are reduce-scattered, overlapped with the backward pass, and all-reduced over replicas once a step.
//
// Expert parallelism (Lepikhin et al. 2020, arXiv:2006.16668): experts are split over ranks of a shard group, tokens
// exchanged by all-to-all, expert parameters gathered and reduced over ranks with equal experts. All processes must run
// the same passes in the same order.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "distributed/context/context_exchange.h"
#include "distributed/experts/expert_parallel_dispatcher.h"
#include "distributed/fsdp/fsdp_unit.h"
#include "distributed/tensor/group_tensor_exchange.h"
#include "nn/decoder/causal_lm.h"
#include "recipes/lora/quantized_base.h"

namespace quench::distributed {

// Memory and communication of FSDP.
struct ShardedModelOptions {
  bool reshard_after_forward = true;     // false: layers stay gathered until the backward pass
  bool reduce_every_micro_batch = true;  // false: full gradients are accumulated until the last micro-batch
  DType reduce_dtype = DType::f32;       // f32 or bf16, within a shard group
  bool gather_codes = true;              // float8 layers gather quantized values (FsdpUnitWeights)
  // Quantized base weights, gathered as stored; or null.
  const recipes::QuantizedBase* base = nullptr;
  // Null: no expert parallelism.
  std::shared_ptr<ProcessGroup> experts, expert_shard;
  bool mxfp8_rows = false;  // token all-to-all in MXFP8
  // Ranks of the shard group with parts of the same sequences; null: sequences are whole.
  std::shared_ptr<ProcessGroup> context;
  // Ranks with the other slices of the weights, whose shard groups are others; null: weights are whole.
  std::shared_ptr<ProcessGroup> tensor;
};

class ShardedModel {
 public:
  // `model` must be sharded for these groups and outlive this object; unsharded parameters (adapters of a recipe) are
  // sharded here.
  ShardedModel(nn::CausalLm& model, std::shared_ptr<ProcessGroup> shard, std::shared_ptr<ProcessGroup> replicate,
               const ShardedModelOptions& options);
  ~ShardedModel();
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;

  // Before a forward pass through a chunk of the model (nn::CausalLm::chunks()), and around its backward pass. After
  // the `last` of a step, the shards' gradients of the chunk are sums over all processes that hold it.
  void begin_forward(std::size_t chunk = 0);
  void begin_backward(bool last, std::size_t chunk = 0);
  void end_backward();
  // Called in the last backward pass of a step for each unit (nn::CausalLm::Unit::parameters) whose gradients have
  // become sums over all processes, which the hook may use and free. Null: none.
  using SummedHook = std::function<void(std::span<nn::Parameter* const> unit)>;
  void when_summed(SummedHook hook) { when_summed_ = std::move(hook); }
  // Local squared gradient norm, f64 [1], to the full model's. In place.
  void sum_squared_norm(const Tensor& norm);
  // Exposed communication since the last call.
  [[nodiscard]] double take_waiting_seconds() { return shared_->clock->take_seconds(); }
  // After an optimizer step: reduces the optimizer's amax of local rows over the shard group.
  void parameters_changed() { shared_->weight_amax->refresh(); }
  // Trained parameters read first in a pass through the first chunk, in model order; their prefetch for the next pass,
  // called once they are updated, overlaps the update of the others.
  [[nodiscard]] std::size_t leading_parameters() const;
  void gather_leading(std::size_t chunk = 0);
  // Drops pending prefetches when no pass follows. Collective.
  void end_gathers();

  // Whole weights at fixed addresses (nn::CausalLm::weights_stay()) while it lives: processes run passes without a tape
  // in any number and order. Memory of the whole model. Not for expert parallelism. Null: a model that is whole.
  // Construction is collective over the shard group. Parameters must not change meanwhile.
  class WholeWeights {
   public:
    explicit WholeWeights(ShardedModel* sharded);
    ~WholeWeights();
    WholeWeights(const WholeWeights&) = delete;
    WholeWeights& operator=(const WholeWeights&) = delete;

   private:
    ShardedModel* sharded_;
  };

 private:
  struct Unit {
    std::vector<nn::Parameter*> parameters;
    std::unique_ptr<FsdpUnit> sharded;  // null: one rank
    std::size_t chunk = 0;
    bool reduced = false;
  };

  [[nodiscard]] nn::Sharding expert_sharding() const;
  void share_experts();
  void before_forward(std::int64_t layer);
  void after_forward(std::int64_t layer);
  void before_backward(std::int64_t layer);
  void after_backward(std::int64_t layer);
  [[nodiscard]] Unit& layer_unit(std::int64_t layer) { return units_[unit_of_layer_[static_cast<std::size_t>(layer)]]; }
  // Units read first in a pass through a chunk.
  [[nodiscard]] std::span<Unit> leading(std::size_t chunk);
  [[nodiscard]] bool is_head(const Unit& unit) const noexcept;
  // End of the layers of a pass through the unit's chunk: MTP layers run in recorded passes alone.
  [[nodiscard]] std::int64_t pass_end(const Unit& unit) const;
  [[nodiscard]] bool reduces() const noexcept { return last_ || options_.reduce_every_micro_batch; }
  void begin_reduce(Unit& unit);
  // Until at most `keep` are in flight.
  void end_reductions(std::size_t keep);
  void begin_replica_sum(Unit& unit);
  // Until at most `keep` are in flight.
  void end_replica_sums(std::size_t keep);
  // Reduces units outside the layers with complete gradients.
  void reduce_ready();
  // Gradients of weights that all ranks of the tensor axis hold whole: their sums.
  void sum_shared_gradients();

  nn::CausalLm& model_;
  std::shared_ptr<ProcessGroup> shard_, replicate_;
  ShardedModelOptions options_;
  Device device_;
  std::int64_t layers_, all_layers_;  // decoder layers; with MTP layers
  std::shared_ptr<FsdpContext> shared_;
  std::unique_ptr<ExpertParallelDispatcher> dispatcher_;  // null: no expert parallelism
  std::unique_ptr<ContextExchange> exchange_;             // null: no context parallelism
  std::unique_ptr<GroupTensorExchange> tensor_;           // null: no tensor parallelism
  std::vector<Unit> units_;
  std::vector<std::size_t> unit_of_layer_;
  std::vector<Unit*> head_units_;
  Unit* embedding_ = nullptr;  // null: the first layer is in another process
  std::deque<Unit*> reducing_;
  std::deque<std::pair<Unit*, Works>> replica_sums_;
  SummedHook when_summed_;
  nn::UnitHooks hooks_;
  std::size_t chunk_ = 0;  // chunk of the backward pass
  bool last_ = true;
  bool gathers_after_head_ = false;
};

}  // namespace quench::distributed
