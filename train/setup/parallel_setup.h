#pragma once
// From a run's config and its processes to how they share the work.

#include <memory>

#include "distributed/environment.h"
#include "distributed/fsdp/sharded_model.h"
#include "distributed/ranks.h"
#include "train/config/run_config.h"
#include "train/setup/model_setup.h"

namespace quench {

// Writes the number of processes into the config, and the global batch size that follows from it where none is given.
// Throws ConfigError when the section parallel, or the batch, does not fit that number.
void set_ranks(RunConfig& config, std::int64_t ranks);

// Of config.parallel.ranks: those that share one copy of the model.
[[nodiscard]] std::int64_t shard_ranks(const RunConfig& config);

// The device that --device asks for: of several GPUs of a machine, each rank takes the one of its own number.
[[nodiscard]] Device device_of_rank(std::string_view name, const distributed::Environment& place);

// The same among `gpus` GPUs that a rank sees. Throws bad_config where there are more ranks than GPUs.
[[nodiscard]] std::int8_t gpu_of_rank(const distributed::Environment& place, int gpus);

// Ranks on the CPU of one machine share its threads, where the config does not say how many each has.
void share_threads(RunConfig& config, const distributed::Environment& place);

// Meets the other processes. Null where there are none. Collective.
[[nodiscard]] std::shared_ptr<const distributed::Ranks> join_ranks(const RunConfig& config,
                                                                   const distributed::Environment& place,
                                                                   Device device);

// Rank 0 of a run of that many, on the meta device; null where it is one.
[[nodiscard]] std::shared_ptr<const distributed::Ranks> planned_ranks(const RunConfig& config);

// Throws bad_config on every rank, with the first difference, where ranks have different configs or programs.
void require_same_run(const distributed::Ranks& ranks, const RunConfig& config);

// The part of each parameter that this rank holds; all of it where `ranks` is null.
[[nodiscard]] ModelSharding run_sharding(const distributed::Ranks* ranks);
// Null where `ranks` is. `base`: weights that are stored in another form; absent: none.
[[nodiscard]] std::unique_ptr<distributed::ShardedModel> share_model(nn::CausalLm& model,
                                                                     const distributed::Ranks* ranks,
                                                                     const RunConfig& config,
                                                                     const recipes::QuantizedBase* base = nullptr);

}  // namespace quench
