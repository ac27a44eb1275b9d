#pragma once
// Parallelism setup from a run's config and ranks.

#include <memory>

#include "distributed/environment.h"
#include "distributed/fsdp/sharded_model.h"
#include "distributed/ranks.h"
#include "train/config/run_config.h"
#include "train/setup/model_setup.h"

namespace quench {

// Sets the world size, and the default global batch size derived from it. Throws ConfigError if section parallel or the
// batch does not fit it.
void set_ranks(RunConfig& config, std::int64_t ranks);

// Shard group size for config.parallel.ranks.
[[nodiscard]] std::int64_t shard_ranks(const RunConfig& config);

// Device of --device; with several GPUs per node, each rank takes the GPU of its local rank.
[[nodiscard]] Device device_of_rank(std::string_view name, const distributed::Environment& place);

// The same for `gpus` visible GPUs. Throws bad_config for more ranks than GPUs.
[[nodiscard]] std::int8_t gpu_of_rank(const distributed::Environment& place, int gpus);

// Divides CPU threads over the ranks of a node, unless configured.
void share_threads(RunConfig& config, const distributed::Environment& place);

// Joins the process group; null for a single process. Collective.
[[nodiscard]] std::shared_ptr<const distributed::Ranks> join_ranks(const RunConfig& config,
                                                                   const distributed::Environment& place,
                                                                   Device device);

// Rank 0 of a planned multi-rank run, on the meta device; null for a single process.
[[nodiscard]] std::shared_ptr<const distributed::Ranks> planned_ranks(const RunConfig& config);

// Throws bad_config on all ranks, with the first difference, for different configs or programs.
void require_same_run(const distributed::Ranks& ranks, const RunConfig& config);

// This rank's shards; whole parameters if `ranks` is null.
[[nodiscard]] ModelSharding run_sharding(const distributed::Ranks* ranks);
// Null if `ranks` is. `base`: weights stored in another form; unset: none.
[[nodiscard]] std::unique_ptr<distributed::ShardedModel> share_model(nn::CausalLm& model,
                                                                     const distributed::Ranks* ranks,
                                                                     const RunConfig& config,
                                                                     const recipes::QuantizedBase* base = nullptr);

}  // namespace quench
