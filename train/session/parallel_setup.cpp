#include "train/session/parallel_setup.h"

#include <algorithm>
#include <cstdlib>

#include "core/system/threads.h"
#include "distributed/equal_gpus.h"
#include "distributed/group_timeouts.h"
#include "distributed/pipeline/pipeline_channels.h"
#include "distributed/pipeline/stage_layers.h"
#include "train/check/check.h"
#include "train/check/load.h"
#include "train/config/config_issue.h"
#include "train/doctor/build_info.h"
#include "train/session/data_setup.h"

namespace quench {
namespace {

// " x context 2 x tensor 2"; empty without them.
std::string other_axes(const ParallelSection& parallel) {
  std::string text;
  if (parallel.context > 1) text += fmt::format(" x context {}", parallel.context);
  if (parallel.tensor > 1) text += fmt::format(" x tensor {}", parallel.tensor);
  if (parallel.pipeline > 1) text += fmt::format(" x pipeline {}", parallel.pipeline);
  return text;
}

// Layers of all chunks, in the order of the model.
std::vector<std::int64_t> chunk_layers(const RunConfig& config, const nn::ModelConfig& model) {
  const ParallelSection& parallel = config.parallel;
  if (!parallel.pipeline_layers.empty()) return parallel.pipeline_layers;
  return distributed::balanced_layers(model, config.data.seq_len, parallel.pipeline * parallel.chunks());
}

void connect_stages(distributed::Ranks& ranks, const std::shared_ptr<distributed::World>& world,
                    const RunConfig& config) {
  if (ranks.mesh.pipeline == 1) return;
  ranks.channels = distributed::make_pipeline_channels(world, ranks, config.parallel.chunks() > 1,
                                                       run_model_config(config).tie_word_embeddings);
}

}  // namespace

distributed::MeshSizes mesh_sizes(const RunConfig& config) {
  const ParallelSection& parallel = config.parallel;
  const std::int64_t others = parallel.replicate * parallel.context * parallel.tensor * parallel.pipeline;
  const std::int64_t shard = parallel.shard == -1 ? parallel.ranks / others : parallel.shard;
  return {.replicate = static_cast<int>(parallel.replicate),
          .shard = static_cast<int>(shard),
          .context = static_cast<int>(parallel.context),
          .expert = static_cast<int>(parallel.expert),
          .tensor = static_cast<int>(parallel.tensor),
          .pipeline = static_cast<int>(parallel.pipeline)};
}

void set_ranks(RunConfig& config, std::int64_t ranks) {
  ParallelSection& parallel = config.parallel;
  parallel.ranks = ranks;
  const auto refuse = [](const char* key, std::string reason) {
    throw ConfigError({{"", key, std::move(reason), ""}});
  };
  const std::string processes = fmt::format("{} process{}", ranks, ranks == 1 ? "" : "es");
  if (ranks % parallel.pipeline != 0)
    refuse("parallel.pipeline", fmt::format("{} stages are not possible with {}; start a multiple of {}, or lower it",
                                            parallel.pipeline, processes, parallel.pipeline));
  const std::int64_t stage = ranks / parallel.pipeline;
  const std::string stages = parallel.pipeline > 1 ? fmt::format(" x pipeline {}", parallel.pipeline) : "";
  if (stage % parallel.tensor != 0)
    refuse("parallel.tensor", fmt::format("{} slices of the weights{} are not possible with {}; start a multiple of "
                                          "{}, or lower it",
                                          parallel.tensor, stages, processes, parallel.tensor * parallel.pipeline));
  if (stage / parallel.tensor % parallel.context != 0)
    refuse("parallel.context",
           fmt::format("{} parts of each sequence{}{} are not possible with {}; start a multiple of {}, or lower it",
                       parallel.context, parallel.tensor > 1 ? fmt::format(" x tensor {}", parallel.tensor) : "",
                       stages, processes, parallel.context * parallel.tensor * parallel.pipeline));
  if (parallel.shard == -1 && stage % (parallel.replicate * parallel.context * parallel.tensor) != 0)
    refuse("parallel.replicate", fmt::format("{} replicas of the model{} are not possible with {}", parallel.replicate,
                                             other_axes(parallel), processes));
  const distributed::MeshSizes mesh = mesh_sizes(config);
  if (mesh.world() != ranks)
    refuse("parallel.shard",
           fmt::format("shard {} x replicate {}{} is {}, but the run has {}; start as many, or leave shard at -1",
                       parallel.shard, parallel.replicate, other_axes(parallel), mesh.world(), processes));
  if (mesh.copy() % parallel.expert != 0)
    refuse("parallel.expert",
           fmt::format("{} does not divide the {} process{} that share a copy of the model (parallel.shard{})",
                       parallel.expert, mesh.copy(), mesh.copy() == 1 ? "" : "es",
                       parallel.context > 1 ? " x parallel.context" : ""));
  const std::int64_t micro_batches = accumulation_steps(config, parallel.data_ranks());
  if (parallel.pipeline > 1 && parallel.chunks() > 1 && micro_batches % parallel.pipeline != 0)
    refuse("parallel.pipeline_schedule",
           fmt::format("interleaved needs a multiple of {} micro-batches in a step (parallel.pipeline), but there are "
                       "{}; change training.global_batch_size or training.micro_batch_size, or take 1f1b",
                       parallel.pipeline, micro_batches));
  // Checkpoints record the step size, independent of the world size.
  if (ranks > 1) config.training.global_batch_size = global_batch_size(config);
}

Device device_of_rank(std::string_view name, const distributed::Environment& place) {
  Device device = parse_device(name);
  // An explicit GPU applies to all ranks.
  if (device.type != DeviceType::cuda || !place.is_distributed() || name.find(':') != std::string_view::npos)
    return device;
  device.index = gpu_of_rank(place, backend(device.type).device_count());
  return device;
}

std::int8_t gpu_of_rank(const distributed::Environment& place, int gpus) {
  // Slurm's --gpus-per-task=1 and the like: a task sees its own GPU alone. NCCL refuses two ranks on one GPU.
  if (gpus == 1 && !place.by_agent) return 0;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  QUENCH_CHECK_AS(ErrorCode::bad_config, place.local_rank < gpus,
                  "rank {} has local rank {} on a machine with {} GPU{}{}; start no more processes than GPUs",
                  place.rank, place.local_rank, gpus, gpus == 1 ? "" : "s",
                  visible != nullptr ? fmt::format(" (CUDA_VISIBLE_DEVICES={})", visible) : "");
  return static_cast<std::int8_t>(place.local_rank);
}

void share_threads(const distributed::Environment& place) {
  if (place.local_world_size == 1 || std::getenv("OMP_NUM_THREADS") != nullptr) return;
  set_thread_count(std::max(1, thread_count() / place.local_world_size));
}

void share_threads(const RunConfig& config, const distributed::Environment& place) {
  if (config.training.threads == 0) share_threads(place);
}

std::shared_ptr<distributed::World> join_world(const distributed::Environment& place, Device device) {
  distributed::GroupOptions options = distributed::read_group_options();
  options.end_hanging_process = true;
  std::shared_ptr<distributed::World> world = distributed::World::join(place, device, options);
  if (device.type == DeviceType::cuda) {
    const Backend& cuda = backend(device.type);
    distributed::require_equal_gpus(world->host(), {cuda.device_name(device), cuda.compute_capability(device)});
  }
  return world;
}

std::shared_ptr<const distributed::Ranks> join_ranks(const RunConfig& config, const distributed::Environment& place,
                                                     Device device) {
  if (!place.is_distributed()) return distributed::Ranks::single();
  const std::shared_ptr<distributed::World> world = join_world(place, device);
  auto ranks = std::make_shared<distributed::Ranks>(distributed::make_ranks(world, mesh_sizes(config)));
  connect_stages(*ranks, world, config);
  return ranks;
}

std::shared_ptr<const distributed::Ranks> planned_ranks(const RunConfig& config, int stage) {
  if (config.parallel.ranks == 1) return distributed::Ranks::single();
  const distributed::MeshSizes mesh = mesh_sizes(config);
  const std::shared_ptr<distributed::World> world = distributed::World::planned(
      stage * static_cast<int>(mesh.stage_ranks()), static_cast<int>(config.parallel.ranks));
  auto ranks = std::make_shared<distributed::Ranks>(distributed::make_ranks(world, mesh));
  connect_stages(*ranks, world, config);
  return ranks;
}

void require_same_run(const distributed::Ranks& ranks, const RunConfig& config) {
  if (ranks.is_single()) return;
  const auto configs = distributed::exchange_texts(*ranks.host, to_json(config).dump(), "configs");
  const std::string own = fmt::format("{} {}", kBuildInfo.version, kBuildInfo.commit);
  const auto programs = distributed::exchange_texts(*ranks.host, own, "programs");
  for (std::size_t rank = 1; rank < configs.size(); ++rank) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, programs[rank] == programs[0],
                    "rank {} runs Quench {}, rank 0 runs {}; start the same program on all", rank, programs[rank],
                    programs[0]);
    if (configs[rank] == configs[0]) continue;
    const Json first = Json::parse(configs[0]), other = Json::parse(configs[rank]);
    std::string differences;
    for (const auto& [section, members] : first.as_object()) {
      const Json* same = other.find(section);
      if (same != nullptr && *same == members) continue;
      if (same == nullptr || !members.is_object() || !same->is_object()) {
        differences += fmt::format("\n  {}: {} on rank 0, {} on rank {}", section, members.dump(),
                                   same != nullptr ? same->dump() : "(unset)", rank);
        continue;
      }
      for (const auto& [key, value] : members.as_object()) {
        const Json* there = same->find(key);
        if (there == nullptr || *there != value)
          differences += fmt::format("\n  {}.{}: {} on rank 0, {} on rank {}", section, key, value.dump(),
                                     there != nullptr ? there->dump() : "(unset)", rank);
      }
    }
    QUENCH_FAIL(
        ErrorCode::bad_config, "the processes of the run have different configs:{}",
        differences.empty() ? fmt::format("\n  rank {} has keys that rank 0 does not have", rank) : differences);
  }
}

ModelSharding run_sharding(const distributed::Ranks& ranks) {
  const distributed::ProcessGroup &shard = *ranks.shard, &same = *ranks.expert_shard, &experts = *ranks.experts;
  return {{shard.rank(), shard.size()},
          {same.rank(), same.size(), experts.rank(), experts.size()},
          {ranks.tensor->rank(), ranks.tensor->size()}};
}

ModelSharding run_sharding(const distributed::Ranks& ranks, const RunConfig& config, const nn::ModelConfig& model) {
  ModelSharding sharding = run_sharding(ranks);
  if (ranks.mesh.pipeline > 1)
    sharding.chunks = distributed::stage_chunks(
        chunk_layers(config, model), {ranks.stage(), ranks.mesh.pipeline, static_cast<int>(config.parallel.chunks())});
  return sharding;
}

std::string describe_stages(const RunConfig& config, const nn::ModelConfig& model) {
  const std::vector<std::int64_t> layers = chunk_layers(config, model);
  const int stages = static_cast<int>(config.parallel.pipeline), chunks = static_cast<int>(config.parallel.chunks());
  std::vector<std::string> texts;
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<std::string> ranges;
    for (const nn::LayerRange& range : distributed::stage_chunks(layers, {stage, stages, chunks}))
      ranges.push_back(range.size() == 1 ? std::to_string(range.begin)
                                         : fmt::format("{}-{}", range.begin, range.end - 1));
    texts.push_back(fmt::format("{}", fmt::join(ranges, ", ")));
  }
  return fmt::format("layers {}", fmt::join(texts, "; "));
}

std::unique_ptr<distributed::ShardedModel> share_model(nn::CausalLm& model, const distributed::Ranks& ranks,
                                                       const RunConfig& config, const recipes::QuantizedBase* base) {
  if (ranks.is_single()) return nullptr;
  const ParallelSection& parallel = config.parallel;
  return std::make_unique<distributed::ShardedModel>(
      model, ranks.shard, ranks.replicate,
      distributed::ShardedModelOptions{
          .reshard_after_forward = parallel.reshard_after_forward,
          .reduce_every_micro_batch = parallel.reduce_every_micro_batch,
          .reduce_dtype = parallel.reduce_dtype,
          .gather_codes = parallel.float8_all_gather,
          .base = base,
          .experts = ranks.experts,
          .expert_shard = ranks.expert_shard,
          .mxfp8_rows = parallel.expert_all_to_all == ParallelSection::DispatchFormat::mxfp8,
          .context = ranks.context,
          .tensor = ranks.tensor});
}

}  // namespace quench
