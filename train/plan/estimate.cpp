#include "train/plan/estimate.h"

#include <algorithm>
#include <fstream>
#include <set>

#include "train/check/check.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/snapshot.h"
#include "train/config/recipe_choice.h"
#include "train/metrics/step_metrics.h"
#include "train/setup/data_setup.h"
#include "train/setup/model_setup.h"
#include "train/setup/optimizer_setup.h"
#include "train/setup/parallel_setup.h"
#include "train/step/planning_batch.h"
#include "train/step/train_step.h"
#include "train/step/training_state.h"

namespace quench {
namespace {

// Resident bytes of this process now: the program, its libraries and what they keep.
std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * 4096;
}

// How long a run whose optimizer state travels is followed: until it has asked for no memory for so many steps.
constexpr std::int64_t kQuietSteps = 16;
constexpr std::int64_t kMostSteps = 96;
constexpr std::int64_t kPlannedMicroBatches = 4;
// Without travelling state: as many as any honest step has, so that an absurd one is planned in time all the same.
constexpr std::int64_t kMostMicroBatches = 256;

// What the first steps add to a CPU process besides tensors: generated code of the matrix products, thread stacks,
// buffers of the logs. Measured on models from 0.9 to 110 million parameters, where it was 3.5 to 4.5 MiB.
constexpr std::int64_t kFirstStepBytes = std::int64_t{4} << 20;

void reset_traffic(const distributed::Ranks& ranks) {
  for (const auto& group : {ranks.world, ranks.shard, ranks.replicate}) group->reset_traffic();
}

// Since the last reset. Groups may be the same one.
void count_traffic(const distributed::Ranks& ranks, RunEstimate& e) {
  for (const auto& group : std::set{ranks.world, ranks.shard, ranks.replicate}) {
    const distributed::TrafficByKind& kinds = group->traffic();
    for (int kind = 0; kind < distributed::kCollectiveKindCount; ++kind)
      (kind == static_cast<int>(distributed::CollectiveKind::all_gather) ? e.gather_bytes : e.reduce_bytes) +=
          kinds[static_cast<std::size_t>(kind)].bytes;
  }
}

std::string mib(std::int64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

bool is_present(Device device) {
  return has_backend(device.type) && device.index < backend(device.type).device_count();
}

RunEstimate estimate_run(const RunConfig& given, Device target) {
  RunEstimate e;
  const RunConfig config = with_choice(given, {});
  e.recipe = config.recipe.name;
  e.recipe_assumed = config.recipe.name != given.recipe.name;
  require_on_device(config, target);
  const std::int64_t micro = config.training.micro_batch_size;
  const std::int64_t micro_batches = accumulation_steps(config, config.parallel.ranks);
  e.ranks = config.parallel.ranks;
  e.shard = shard_ranks(config);
  e.replicate = config.parallel.replicate;
  const std::shared_ptr<const distributed::Ranks> ranks = planned_ranks(config);
  Allocator& plan = Allocator::of(kPlanning);
  plan.trim();
  plan.reset_peak();
  {
    const ModelSetup setup = build_model(config, kPlanning, target, run_sharding(ranks.get()));
    const auto sharded = share_model(*setup.model, ranks.get(), config);
    const auto optimizer = make_optimizer(*setup.model, config);
    const autograd::ActivationPlan activations = activation_plan(config, setup.config);
    TrainStep step(*setup.model, *optimizer,
                   {.recompute = recompute_level(config.training.activation_checkpoint),
                    .loss = loss_options(config, setup.config.vocab_size, target),
                    .activations = activations,
                    .state_offload_ratio = config.optimizer.offload_ratio,
                    .max_norm = config.training.max_norm,
                    .sharded = sharded.get(),
                    .ranks = ranks.get(),
                    .router_terms = router_terms(config, setup.config)});
    // The first step differs from all others. With offloaded state, allocations settle after several steps.
    // Micro-batches between the first and the last are alike.
    const bool travels = step.offloaded_state_bytes() > 0;
    const std::int64_t planned = std::min(micro_batches, travels ? kPlannedMicroBatches : kMostMicroBatches);
    std::int64_t segments = 0, quiet = 0;
    for (std::int64_t s = 1; s <= (travels ? kMostSteps : 2) && quiet < kQuietSteps; ++s) {
      std::vector<Batch> batches;
      for (std::int64_t i = 0; i < planned; ++i) batches.push_back(planning_batch(micro, config.data.seq_len));
      if (ranks != nullptr) reset_traffic(*ranks);
      (void)step.accumulate(batches, s);
      step.apply(0.0, s);
      quiet = plan.stats().segment_count == segments ? quiet + 1 : 0;
      segments = plan.stats().segment_count;
    }
    e.device = plan.stats();
    if (ranks != nullptr) count_traffic(*ranks, e);
    // Of each such layer, the input of swiglu. The host queues a micro-batch while the device works on the one before
    // it, whose blocks are not free yet.
    const std::int64_t in_work = std::min<std::int64_t>(micro_batches, 2);
    const nn::ExpertsConfig& experts = setup.config.experts;
    const std::int64_t width = std::max(
        experts.layer_count() < setup.config.num_hidden_layers ? setup.config.intermediate_size : std::int64_t{0},
        experts.per_token * experts.intermediate_size);
    e.offload_bytes = in_work * activations.count(autograd::LargestActivation::offloaded) * micro *
                      config.data.seq_len * 2 * width * static_cast<std::int64_t>(byte_size(config.training.dtype));
    e.state_offload_bytes = step.offloaded_state_bytes();
    const std::vector<CheckpointTensor> tensors = training_tensors(*setup.model, *optimizer);
    e.staging_bytes = snapshot_bytes(tensors);
    for (const CheckpointTensor& tensor : tensors)
      e.checkpoint_bytes += static_cast<std::int64_t>(row_bytes(
          tensor.global_shape, tensor.data.dtype(), tensor.global_shape.rank() == 0 ? 1 : tensor.global_shape[0]));
    e.parameters = setup.config.parameter_count();
    e.active_parameters = setup.config.active_parameter_count();
    e.flops_per_token = training_flops(setup.config, setup.conversion, config.data.seq_len, trained_adapters(setup));
    e.dtype = config.training.dtype;
  }
  plan.trim();
  e.tokens_per_step = global_batch_size(config) * config.data.seq_len;
  e.data_bytes = (micro_batches + config.data.prefetch) * micro * config.data.seq_len * 3 * 4;
  const bool saves = config.checkpoint.enable && config.checkpoint.async;
  if (!saves) e.staging_bytes = 0;
  if (target.is_cpu()) e.process_bytes = resident_bytes() + kFirstStepBytes;
  // Segments, not blocks: what splitting and merging leave unused is resident too.
  e.total_bytes = e.device.peak_reserved + (target.is_cpu() ? e.data_bytes + e.staging_bytes + e.process_bytes : 0);
  if (!target.is_meta() && is_present(target)) e.available_bytes = backend(target.type).memory(target).free_bytes;
  if (!target.is_cpu()) e.host_bytes = e.data_bytes + e.staging_bytes + e.offload_bytes + e.state_offload_bytes;
  if (is_present(target)) e.host_available_bytes = backend(DeviceType::cpu).memory(Device{}).free_bytes;
  return e;
}

std::string to_string(const RunEstimate& e) {
  std::string text = fmt::format(
      "parameters       {}\ntokens a step    {}\nFLOPs a step     {:.3g}: {}\n\nmemory, MiB\n",
      format_count(e.parameters), format_count(e.tokens_per_step),
      e.flops_per_token.total() * static_cast<double>(e.tokens_per_step), shares(e.flops_per_token, e.dtype));
  if (e.ranks > 1)
    text.insert(0, fmt::format("processes        {}: shard {} x replicate {}; memory is that of one\n"
                               "sent in a step   {} MiB of weights, {} MiB of gradients, by each process\n",
                               format_count(e.ranks), e.shard, e.replicate, mib(e.gather_bytes), mib(e.reduce_bytes)));
  for (int i = 0; i < kMemoryCategoryCount; ++i) {
    const std::int64_t bytes = e.device.peak_by_category[static_cast<std::size_t>(i)];
    if (bytes > 0) text += fmt::format("  {:<22}{:>12}\n", to_string(static_cast<MemoryCategory>(i)), mib(bytes));
  }
  const auto row = [&](std::string_view name, std::int64_t bytes) {
    if (bytes > 0) text += fmt::format("  {:<22}{:>12}\n", name, mib(bytes));
  };
  const auto host_rows = [&] {
    row("batches made ahead", e.data_bytes);
    row("checkpoint staging", e.staging_bytes);
    row("activations sent away", e.offload_bytes);
    row("optimizer state sent away", e.state_offload_bytes);
    row("program and libraries", e.process_bytes);
  };
  const auto totals = [&](std::int64_t needed, std::optional<std::int64_t> available) {
    text += fmt::format("  {:<22}{:>12}\n  {:<22}{:>12}\n", "total at peak", mib(needed), "available",
                        available ? mib(*available) : "unknown");
  };
  row("unused within segments", e.device.peak_reserved - e.device.peak);
  if (e.host_bytes == 0) host_rows();
  totals(e.total_bytes, e.available_bytes);
  if (e.host_bytes > 0) {
    text += "\nhost memory, MiB\n";
    host_rows();
    totals(e.host_bytes, e.host_available_bytes);
  }
  if (e.recipe_assumed)
    text += fmt::format("\nrecipe.name is \"auto\", chosen when the run starts: this is for {}\n", e.recipe);
  text += fmt::format("\none checkpoint on disk: {} MiB\n{}\n", mib(e.checkpoint_bytes),
                      !e.fits()           ? "DOES NOT FIT"
                      : e.available_bytes ? "fits"
                                          : "fits a device with that much memory");
  return text;
}

Json to_json(const RunEstimate& e) {
  Json json = Json::object();
  json.set("recipe", e.recipe);
  json.set("recipe_assumed", e.recipe_assumed);
  json.set("parameters", e.parameters);
  json.set("active_parameters", e.active_parameters);
  json.set("tokens_per_step", e.tokens_per_step);
  json.set("flops_per_token", e.flops_per_token.total());
  json.set("float8_flops_per_token", e.flops_per_token.float8);
  Json memory = Json::object();
  for (int i = 0; i < kMemoryCategoryCount; ++i)
    memory.set(to_string(static_cast<MemoryCategory>(i)), e.device.peak_by_category[static_cast<std::size_t>(i)]);
  memory.set("batches", e.data_bytes);
  memory.set("checkpoint_staging", e.staging_bytes);
  memory.set("offload", e.offload_bytes);
  memory.set("optimizer_offload", e.state_offload_bytes);
  memory.set("process", e.process_bytes);
  json.set("memory_bytes", std::move(memory));
  json.set("reserved_bytes", e.device.peak_reserved);
  json.set("total_bytes", e.total_bytes);
  json.set("available_bytes", e.available_bytes ? Json(*e.available_bytes) : Json());
  json.set("checkpoint_bytes", e.checkpoint_bytes);
  json.set("ranks", e.ranks);
  json.set("shard", e.shard);
  json.set("replicate", e.replicate);
  json.set("gather_bytes_per_step", e.gather_bytes);
  json.set("reduce_bytes_per_step", e.reduce_bytes);
  json.set("host_bytes", e.host_bytes);
  json.set("host_available_bytes", e.host_available_bytes ? Json(*e.host_available_bytes) : Json());
  json.set("fits", e.fits());
  return json;
}

void require_memory(const RunEstimate& e, Device target) {
  if (e.fits()) return;
  QUENCH_CHECK_AS(
      ErrorCode::out_of_memory, !e.fits_device(),
      "this run needs about {} MiB of host memory beside {}, {} MiB are available\n{}set checkpoint.async to "
      "false, or lower training.offload_layers, optimizer.offload_ratio or data.prefetch",
      mib(e.host_bytes), target.to_string(), mib(e.host_available_bytes.value_or(0)), to_string(e));
  QUENCH_FAIL(ErrorCode::out_of_memory,
              "this run needs about {} MiB on {}, {} MiB are available\n{}reduce training.micro_batch_size or "
              "data.seq_len, set training.activation_checkpoint to \"selective\" (and then raise "
              "training.recompute_mlp_layers{}) or to \"full\", lower training.loss_chunk_size{}",
              mib(e.total_bytes), target.to_string(), mib(e.available_bytes.value_or(0)), to_string(e),
              target.is_cpu() ? "" : " or training.offload_layers",
              target.is_cpu() ? ", or set checkpoint.async to false" : ", or raise optimizer.offload_ratio");
}

}  // namespace quench
