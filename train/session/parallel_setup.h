#pragma once
// Parallelism of a run.

#include <memory>

#include "distributed/environment.h"
#include "distributed/fsdp/sharded_model.h"
#include "distributed/ranks.h"
#include "train/config/run_config.h"
#include "train/session/model_setup.h"

namespace quench {

// World size, and the default global batch size. Throws ConfigError if section parallel or the batch does not fit.
void set_ranks(RunConfig& config, std::int64_t ranks);

// Sizes for config.parallel.ranks processes; their product differs where set_ranks() would refuse.
[[nodiscard]] distributed::MeshSizes mesh_sizes(const RunConfig& config);
// Ranks that share a copy of the model.
[[nodiscard]] inline std::int64_t shard_ranks(const RunConfig& config) {
  const distributed::MeshSizes mesh = mesh_sizes(config);
  return mesh.copy() * mesh.tensor * mesh.pipeline;
}

// --device; with several GPUs per node, the GPU of the local rank.
[[nodiscard]] Device device_of_rank(std::string_view name, const distributed::Environment& place);

// The local rank; 0 where a task sees one GPU, unless an agent has started it. Throws bad_config for more ranks than
// GPUs.
[[nodiscard]] std::int8_t gpu_of_rank(const distributed::Environment& place, int gpus);

// CPU threads per rank of a node, unless configured.
void share_threads(const distributed::Environment& place);
void share_threads(const RunConfig& config, const distributed::Environment& place);

// All processes of the launch. Collective. Throws unsupported for GPUs of different compute capability.
[[nodiscard]] std::shared_ptr<distributed::World> join_world(const distributed::Environment& place, Device device);
// Never null. Collective. Throws as join_world().
[[nodiscard]] std::shared_ptr<const distributed::Ranks> join_ranks(const RunConfig& config,
                                                                   const distributed::Environment& place,
                                                                   Device device);

// The first rank of a pipeline stage of the run's ranks, those of several on the meta device. Never null.
[[nodiscard]] std::shared_ptr<const distributed::Ranks> planned_ranks(const RunConfig& config, int stage = 0);

// Throws bad_config on all ranks, with the first difference.
void require_same_run(const distributed::Ranks& ranks, const RunConfig& config);

// Part of one pipeline stage, and with the rank's chunks of `model`.
[[nodiscard]] ModelSharding run_sharding(const distributed::Ranks& ranks);
[[nodiscard]] ModelSharding run_sharding(const distributed::Ranks& ranks, const RunConfig& config,
                                         const nn::ModelConfig& model);
// "layers 0-3; 4-7", of each pipeline stage, with its chunks: "layers 0-1, 4-5; 2-3, 6-7".
[[nodiscard]] std::string describe_stages(const RunConfig& config, const nn::ModelConfig& model);
// Null for a single process. `base`: weights stored in another form; or unset.
[[nodiscard]] std::unique_ptr<distributed::ShardedModel> share_model(nn::CausalLm& model,
                                                                     const distributed::Ranks& ranks,
                                                                     const RunConfig& config,
                                                                     const recipes::QuantizedBase* base = nullptr);

}  // namespace quench
