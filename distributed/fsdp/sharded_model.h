#pragma once
// Training of one model by several processes: each holds a part of every parameter, of its gradient and of what the
// optimizer keeps for it, and all of them compute on different sequences.
//
// Ranks form a grid of replicas x shards. Within a shard group, units (nn::CausalLm::units) are gathered ahead of
// their use and freed after it, and their gradients are reduce-scattered, overlapped with the backward pass, while
// other units compute. Replicas hold the same parts; sums of gradients cross over to them once a step. (Rajbhandari et
// al. 2020, ZeRO; Zhao et al. 2023, PyTorch FSDP.)
//
// Experts may be split over some ranks of a shard group (Lepikhin et al. 2020, arXiv:2006.16668): each computes
// with its own experts alone, on the rows that all of these ranks send it, so that only the ranks that hold the same
// experts gather and sum them. Gradients are sums over the sequences of all ranks in either case.
//
// Every process must make the same passes in the same order.

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "distributed/experts/expert_parallel_dispatcher.h"
#include "distributed/fsdp/fsdp_unit.h"
#include "nn/causal_lm.h"
#include "recipes/lora/quantized_base.h"

namespace quench::distributed {

struct ShardedModelOptions {
  bool reshard_after_forward = true;     // false: layers stay whole until the backward pass has used them
  bool reduce_every_micro_batch = true;  // false: whole gradients are kept until the last micro-batch
  DType reduce_dtype = DType::f32;       // f32 or bf16: of gradients summed within a shard group
  bool gather_codes = true;              // weights of float8 layers travel as codes (FsdpUnitWeights), not as values
  // Weights that are stored in another form: what that consists of is gathered in their place. Null: none.
  const recipes::QuantizedBase* base = nullptr;
  // Expert-parallel ranks of the shard group, and the ranks that hold the same experts; null: no expert parallelism.
  std::shared_ptr<ProcessGroup> experts, expert_shard;
  bool mxfp8_rows = false;  // activations on their way to experts and back are rounded (distributed/experts/)
};

class ShardedModel {
 public:
  // `model` was made with the sharding of its options that belongs to the groups; parameters that were not (adapters of
  // a recipe) are sharded here. It must outlive this object and computes as before in the meantime.
  ShardedModel(nn::CausalLm& model, std::shared_ptr<ProcessGroup> shard, std::shared_ptr<ProcessGroup> replicate,
               const ShardedModelOptions& options);
  ~ShardedModel();
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;

  // Around the forward and backward pass of a micro-batch; `last` of its step. After the end of the last one the
  // gradients of the shards are sums over all processes.
  void begin_pass(bool last);
  void end_pass();
  // `norm`, f64 [1], of the shards' gradients becomes that of the whole model.
  void sum_squared_norm(const Tensor& norm);
  // Seconds in which computation stood still for communication, since the last call.
  [[nodiscard]] double take_waiting_seconds() { return shared_->clock->take_seconds(); }
  // After an update: magnitudes that the optimizer has kept up of its shards become those of the whole parameters.
  void parameters_changed() { shared_->weight_amax->refresh(); }
  // How many of the trained parameters, in the order of the model, a pass reads first; and once these have been
  // updated: starts their all-gather for the next pass, ordered after the update of the others.
  [[nodiscard]] std::size_t leading_parameters() const;
  void gather_leading();
  // No pass follows: what is on its way for one has arrived, and is given up. All processes call it.
  void end_gathers();

 private:
  struct Unit {
    std::vector<nn::Parameter*> parameters;
    std::unique_ptr<FsdpUnit> sharded;  // null: the group has one rank
    bool reduced = false;               // in this pass
  };

  [[nodiscard]] nn::Sharding expert_sharding() const;
  // Gives layers with experts the way to those of the other ranks.
  void share_experts();
  void before_forward(std::int64_t layer);
  void after_forward(std::int64_t layer);
  void before_backward(std::int64_t layer);
  void after_backward(std::int64_t layer);
  [[nodiscard]] Unit& layer_unit(std::int64_t layer) { return units_[static_cast<std::size_t>(layer) + 1]; }
  [[nodiscard]] bool reduces() const noexcept { return last_ || options_.reduce_every_micro_batch; }
  void begin_reduce(Unit& unit);
  // Ends reductions until `keep` are on their way.
  void end_reductions(std::size_t keep);
  void begin_replica_sum(Unit& unit);
  // Units outside the layers whose gradients are complete.
  void reduce_ready();

  nn::CausalLm& model_;
  std::shared_ptr<ProcessGroup> shard_, replicate_;
  ShardedModelOptions options_;
  Device device_;
  std::int64_t layers_;
  std::shared_ptr<FsdpContext> shared_;
  std::unique_ptr<ExpertParallelDispatcher> dispatcher_;  // null: no expert parallelism
  std::vector<Unit> units_;                               // embedding, layers, final norm, head
  std::vector<Unit*> head_units_;                         // of the final norm and of the logits
  std::deque<Unit*> reducing_;                            // oldest first
  Works replica_sums_;
  nn::UnitHooks hooks_;
  bool last_ = true;
};

}  // namespace quench::distributed
