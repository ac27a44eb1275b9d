#include "train/plan/estimate.h"

#include <algorithm>
#include <fstream>
#include <set>

#include "core/memory/memory_limit.h"
#include "train/check/check.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/snapshot.h"
#include "train/metrics/step_metrics.h"
#include "train/plan/planned_objective.h"
#include "train/setup/data_setup.h"
#include "train/setup/model_setup.h"
#include "train/setup/objective_setup.h"
#include "train/setup/optimizer_setup.h"
#include "train/setup/parallel_setup.h"
#include "train/setup/preference_setup.h"
#include "train/setup/trained_parameters.h"
#include "train/step/meta_batch.h"
#include "train/step/train_step.h"
#include "train/step/training_state.h"

namespace quench {
namespace {

// Resident bytes of this process: program and libraries.
std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * 4096;
}

// With offloaded optimizer state: simulate until this many steps without new allocations.
constexpr std::int64_t kQuietSteps = 16;
constexpr std::int64_t kMostSteps = 96;
constexpr std::int64_t kPlannedMicroBatches = 4;
// Without offloaded state: limit of simulated micro-batches, bounding the planning time of absurd configs.
constexpr std::int64_t kMostMicroBatches = 256;

// Non-tensor memory of a CPU process's first steps: JIT code of GEMMs, thread stacks, log buffers. Measured 3.5 to 4.5
// MiB on models of 0.9 to 110 million parameters.
constexpr std::int64_t kFirstStepBytes = std::int64_t{4} << 20;

// Groups may coincide.
std::set<std::shared_ptr<distributed::ProcessGroup>> device_groups(const distributed::Ranks& ranks) {
  return {ranks.world, ranks.shard, ranks.replicate, ranks.experts, ranks.expert_shard};
}

void reset_traffic(const distributed::Ranks& ranks) {
  for (const auto& group : device_groups(ranks)) group->reset_traffic();
}

// All-gathers and reductions per group since the last reset. Expert all-to-all bytes go to e.exchange_bytes only.
std::vector<GroupTraffic> count_traffic(const distributed::Ranks& ranks, const Cluster& cluster, RunEstimate& e) {
  using distributed::CollectiveKind;
  std::vector<GroupTraffic> all;
  for (const auto& group : device_groups(ranks)) {
    GroupTraffic gathers{.ranks = group->size(),
                         .neighbours = group != ranks.replicate || ranks.size <= cluster.node_size};
    GroupTraffic sums = gathers, exchanges;
    sums.reduces = true;
    const distributed::TrafficByKind& kinds = group->traffic();
    for (int kind = 0; kind < distributed::kCollectiveKindCount; ++kind) {
      GroupTraffic& traffic = kind == static_cast<int>(CollectiveKind::all_gather)   ? gathers
                              : kind == static_cast<int>(CollectiveKind::all_to_all) ? exchanges
                                                                                     : sums;
      traffic.calls += kinds[static_cast<std::size_t>(kind)].calls;
      traffic.bytes += kinds[static_cast<std::size_t>(kind)].bytes;
    }
    e.gather_bytes += gathers.bytes;
    e.reduce_bytes += sums.bytes;
    e.exchange_bytes += exchanges.bytes;
    for (const GroupTraffic& traffic : {gathers, sums})
      if (traffic.bytes > 0) all.push_back(traffic);
  }
  return all;
}

// Work per rank and step, for the time prediction.
StepWork step_work(const RunConfig& config, const ModelSetup& setup, std::span<const CheckpointTensor> state,
                   std::int64_t micro_batches, const RunEstimate& e) {
  StepWork work;
  const nn::ModelConfig& model = setup.config;
  work.flops_per_token = e.flops_per_token;
  work.attention_flops_per_token =
      model.training_flops_per_token(config.data.seq_len) - model.training_flops_per_token(0);
  if (config.training.activation_checkpoint == TrainingSection::ActivationCheckpoint::full) work.recomputed = 1;
  work.tokens = static_cast<double>(config.training.micro_batch_size * config.data.seq_len * micro_batches);
  add_activation_work(model, e.flops_per_token, work.tokens, work);
  // Parameters and moments: read and written; gradients: read for norm and update.
  work.update_bytes = 2 * static_cast<double>(snapshot_bytes(state));
  for (const nn::Parameter* parameter : setup.model->parameters())
    if (parameter->variable.requires_grad())
      work.update_bytes += 2.0 * static_cast<double>(parameter->variable.value().numel()) *
                           static_cast<double>(byte_size(e.ranks > 1 ? config.parallel.reduce_dtype
                                                                     : config.training.grad_dtype.value_or(e.dtype)));
  // The embedding is all-gathered first, its gradient reduced last.
  const double sent = static_cast<double>(model.vocab_size * model.hidden_size * (e.shard - 1)) /
                      static_cast<double>(std::max<std::int64_t>(e.shard, 1));
  work.first_bytes = sent * static_cast<double>(byte_size(config.training.dtype));
  work.last_bytes = sent * static_cast<double>(byte_size(config.parallel.reduce_dtype));
  return work;
}

// GPU of the rates: the target if present, else the measured one.
std::string gpu_name(Device target) {
  return is_present(target) ? backend(target.type).device_name(target) : std::string(kPlannedGpu);
}

std::string time_lines(const RunEstimate& e) {
  if (!e.time) return {};
  const StepTime& t = *e.time;
  const auto ms = [](double seconds) { return fmt::format("{:.1f}", seconds * 1e3); };
  std::string text =
      fmt::format("\nstep time on {}, ms: {}, {} tokens/s a GPU (docs/guide/scaling.md)\n", t.device, ms(t.total()),
                  format_count(static_cast<std::int64_t>(static_cast<double>(e.tokens_per_step) /
                                                         static_cast<double>(e.ranks) / t.total())));
  const auto row = [&](std::string_view name, double seconds) {
    if (seconds > 0) text += fmt::format("  {:<22}{:>12}\n", name, ms(seconds));
  };
  row("GEMMs", t.products);
  row("attention", t.attention);
  row("passes over memory", t.passes);
  row("update", t.update);
  row("slowed by transfers", t.slowed);
  row("waiting for transfers", t.exposed);
  if (t.communication > 0)
    text += fmt::format("  transfers take {} ms, on nodes of {} GPUs{}\n", ms(t.communication), e.cluster.node_size,
                        e.ranks > e.cluster.node_size ? fmt::format(" with {:.0f} GB/s from each GPU to other nodes",
                                                                    e.cluster.network_bytes / 1e9)
                                                      : "");
  return text;
}

std::string mib(std::int64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

bool is_present(Device device) {
  return has_backend(device.type) && device.index < backend(device.type).device_count();
}

std::optional<DeviceMemory> run_memory(const RunConfig& config, Device device) {
  const std::int64_t limit = device.is_cpu() ? 0 : parse_memory_size(config.training.memory_limit).value_or(0);
  if (device.is_meta()) return std::nullopt;
  if (is_present(device))
    return within_limit(backend(device.type).memory(device), Allocator::of(device).stats().reserved, limit);
  if (limit == 0) return std::nullopt;
  return within_limit({limit, limit}, 0, limit);
}

RunEstimate estimate_run(const ResolvedConfig& resolved, Device target, const Cluster& cluster) {
  const RunConfig& config = *resolved;
  RunEstimate e;
  e.cluster = cluster;
  std::int64_t planned_micro_batches = 1;
  std::vector<GroupTraffic> traffic;
  StepWork work;
  e.recipe = config.recipe.name;
  e.recipe_assumed = resolved.choice().has_value();
  require_on_device(config, target);
  const std::int64_t micro = config.training.micro_batch_size;
  const std::int64_t micro_batches = accumulation_steps(config, config.parallel.ranks);
  e.ranks = config.parallel.ranks;
  e.shard = shard_ranks(config);
  e.replicate = config.parallel.replicate;
  e.expert = config.parallel.expert;
  const std::shared_ptr<const distributed::Ranks> ranks = planned_ranks(config);
  Allocator& plan = Allocator::of(kMeta);
  e.reference_bytes = reference_weight_bytes(config, ranks.get());
  plan.trim();
  plan.reset_peak();
  {
    const ModelSetup setup = build_model(resolved, kMeta, target, run_sharding(ranks.get()));
    const auto sharded = share_model(*setup.model, ranks.get(), config, setup.base.get());
    const auto optimizer = make_optimizer(*setup.model, config, ranks.get());
    const std::int64_t own_bytes = plan.stats().current;
    const std::unique_ptr<Objective> objective = make_objective(setup, config, ranks.get());
    e.teacher_bytes = plan.stats().current - own_bytes;
    const LmHeadLossOptions loss = loss_options(config, setup.config.vocab_size, target);
    if (config.distill && config.distill->targets.empty())
      e.teacher_logits_bytes =
          std::min(loss.chunk_rows, micro * config.data.seq_len) * setup.config.vocab_size *
          static_cast<std::int64_t>(byte_size(loss.f32_logits ? DType::f32 : config.training.dtype));
    const std::unique_ptr<PreferenceSetup> preferences = make_preferences(config, *setup.model, ranks.get());
    if (preferences && preferences->train_reference) preferences->train_reference->set({{0.0, 0.0}});
    const autograd::ActivationPolicy activations = activation_policy(config, setup.config);
    TrainStep step(*setup.model, *optimizer,
                   {.recompute = recompute_level(config.training.activation_checkpoint),
                    .loss = loss,
                    .activations = activations,
                    .state_offload_ratio = config.optimizer.offload_ratio,
                    .max_norm = config.training.max_norm,
                    .sharded = sharded.get(),
                    .ranks = ranks.get(),
                    .router_terms = router_terms(config, setup.config),
                    .objective = preferences ? preferences->train.get() : objective.get(),
                    .scaling = setup.scaling.get()});
    // Of the model and its optimizer, before the first step.
    const std::int64_t at_start = plan.stats().current;
    // The first step differs from all others; with offloaded state, allocations settle after several steps. Inner
    // micro-batches are identical.
    const bool travels = step.offloaded_state_bytes() > 0;
    const std::int64_t planned = std::min(micro_batches, travels ? kPlannedMicroBatches : kMostMicroBatches);
    planned_micro_batches = planned;
    std::int64_t segments = 0, quiet = 0;
    for (std::int64_t s = 1; s <= (travels ? kMostSteps : 2) && quiet < kQuietSteps; ++s) {
      std::vector<Batch> batches;
      for (std::int64_t i = 0; i < planned; ++i) batches.push_back(planned_batch(config));
      if (ranks != nullptr) reset_traffic(*ranks);
      (void)step.accumulate(batches, s);
      step.apply(0.0, s);
      quiet = plan.stats().segment_count == segments ? quiet + 1 : 0;
      segments = plan.stats().segment_count;
    }
    e.device = plan.stats();
    if (e.reference_bytes > 0) e.start_bytes = at_start + e.reference_bytes;
    if (ranks != nullptr) traffic = count_traffic(*ranks, cluster, e);
    // Input of the activation function per offloaded layer. The host queues a micro-batch while the previous one, whose
    // blocks are not yet free, runs on the device.
    const std::int64_t in_work = std::min<std::int64_t>(micro_batches, 2);
    std::int64_t width = 0;
    for (const nn::BlockSpec& block : setup.config.blocks()) width = std::max(width, block.feed_forward.active_width());
    e.offload_bytes = in_work * activations.count(autograd::SavePolicy::offload) * micro * config.data.seq_len * 2 *
                      width * static_cast<std::int64_t>(byte_size(config.training.dtype));
    e.state_offload_bytes = step.offloaded_state_bytes();
    std::vector<CheckpointTensor> tensors = training_tensors(*setup.model, *optimizer);
    if (setup.scaling) add_scaling(tensors, *setup.scaling);
    e.staging_bytes = snapshot_bytes(tensors);
    for (const CheckpointTensor& tensor : tensors)
      e.checkpoint_bytes += static_cast<std::int64_t>(row_bytes(
          tensor.global_shape, tensor.data.dtype(), tensor.global_shape.rank() == 0 ? 1 : tensor.global_shape[0]));
    e.parameters = setup.config.parameter_count();
    if (!config.training.freeze.empty() || !config.training.train.empty())
      e.trained_parameters = trained_elements(*setup.model);
    e.active_parameters = setup.config.active_parameter_count();
    e.flops_per_token = training_flops(setup.config, setup.conversion, config.data.seq_len, trained_adapters(setup),
                                       spared_work(*setup.model));
    e.dtype = config.training.dtype;
    work = step_work(config, setup, tensors, micro_batches, e);
  }
  if (const DeviceRates* rates = target.type == DeviceType::cuda ? device_rates(gpu_name(target)) : nullptr;
      rates != nullptr && e.dtype == DType::bf16) {
    // Inner micro-batches are identical.
    if (micro_batches > planned_micro_batches)
      for (GroupTraffic& group : traffic) {
        group.bytes = group.bytes / planned_micro_batches * micro_batches;
        group.calls = group.calls * micro_batches / planned_micro_batches;
      }
    e.time = predict_step(*rates, cluster, work, traffic);
  }
  plan.trim();
  e.tokens_per_step = global_batch_size(config) * config.data.seq_len;
  e.data_bytes = (micro_batches + config.data.prefetch) * micro * config.data.seq_len * 3 * 4;
  const bool saves = config.checkpoint.enable && config.checkpoint.async;
  if (!saves) e.staging_bytes = 0;
  if (target.is_cpu()) e.process_bytes = resident_bytes() + kFirstStepBytes;
  // Segments, not blocks: fragmentation is resident too.
  e.total_bytes = std::max(e.device.peak_reserved, e.start_bytes) +
                  (target.is_cpu() ? e.data_bytes + e.staging_bytes + e.process_bytes : 0);
  if (const auto memory = run_memory(config, target)) e.available_bytes = memory->free_bytes;
  e.memory_limit = parse_memory_size(config.training.memory_limit).value_or(0);
  if (!target.is_cpu()) e.host_bytes = e.data_bytes + e.staging_bytes + e.offload_bytes + e.state_offload_bytes;
  if (is_present(target)) e.host_available_bytes = backend(DeviceType::cpu).memory(Device{}).free_bytes;
  return e;
}

std::string to_string(const RunEstimate& e) {
  std::string text =
      fmt::format("parameters       {}{}\ntokens a step    {}\nFLOPs a step     {:.3g}: {}\n\nmemory, MiB\n",
                  format_count(e.parameters),
                  e.trained_parameters > 0 ? fmt::format(", {} trained", format_count(e.trained_parameters)) : "",
                  format_count(e.tokens_per_step), e.flops_per_token.total() * static_cast<double>(e.tokens_per_step),
                  shares(e.flops_per_token, e.dtype, recipes::find_recipe(e.recipe).capabilities.codes()));
  if (e.ranks > 1)
    text.insert(0, fmt::format("processes        {}: shard {} x replicate {}; memory is that of one\n"
                               "sent in a step   {} MiB of weights, {} MiB of gradients, by each process\n",
                               format_count(e.ranks), e.shard, e.replicate, mib(e.gather_bytes), mib(e.reduce_bytes)));
  if (e.expert > 1)
    text.insert(text.find("parameters"),
                fmt::format("experts          split over {} processes; {} MiB of rows sent by each in a step\n",
                            e.expert, mib(e.exchange_bytes)));
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
    row("optimizer state offloaded", e.state_offload_bytes);
    row("program and libraries", e.process_bytes);
  };
  const auto totals = [&](std::int64_t needed, std::optional<std::int64_t> available) {
    text += fmt::format("  {:<22}{:>12}\n  {:<22}{:>12}\n", "total at peak", mib(needed), "available",
                        available ? mib(*available) : "unknown");
  };
  row("unused within segments", e.device.peak_reserved - e.device.peak);
  row("teacher, of these", e.teacher_bytes);
  row("its logits, of these", e.teacher_logits_bytes);
  row("reference, at the start", e.reference_bytes);
  if (e.host_bytes == 0) host_rows();
  totals(e.total_bytes, e.available_bytes);
  row("memory limit", e.memory_limit);
  if (e.host_bytes > 0) {
    text += "\nhost memory, MiB\n";
    host_rows();
    totals(e.host_bytes, e.host_available_bytes);
  }
  text += time_lines(e);
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
  memory.set("teacher", e.teacher_bytes);
  memory.set("teacher_logits", e.teacher_logits_bytes);
  memory.set("reference", e.reference_bytes);
  memory.set("batches", e.data_bytes);
  memory.set("checkpoint_staging", e.staging_bytes);
  memory.set("offload", e.offload_bytes);
  memory.set("optimizer_offload", e.state_offload_bytes);
  memory.set("process", e.process_bytes);
  json.set("memory_bytes", std::move(memory));
  json.set("reserved_bytes", e.device.peak_reserved);
  json.set("total_bytes", e.total_bytes);
  json.set("available_bytes", e.available_bytes ? Json(*e.available_bytes) : Json());
  json.set("memory_limit_bytes", e.memory_limit > 0 ? Json(e.memory_limit) : Json());
  json.set("checkpoint_bytes", e.checkpoint_bytes);
  json.set("ranks", e.ranks);
  json.set("shard", e.shard);
  json.set("replicate", e.replicate);
  json.set("expert", e.expert);
  json.set("exchange_bytes_per_step", e.exchange_bytes);
  json.set("gather_bytes_per_step", e.gather_bytes);
  json.set("reduce_bytes_per_step", e.reduce_bytes);
  json.set("step_time", e.time ? to_json(*e.time) : Json());
  json.set("host_bytes", e.host_bytes);
  json.set("host_available_bytes", e.host_available_bytes ? Json(*e.host_available_bytes) : Json());
  json.set("fits", e.fits());
  return json;
}

void require_memory(const RunEstimate& e, Device target) {
  if (e.fits()) return;
  QUENCH_CHECK_AS(
      ErrorCode::out_of_memory, !e.fits_device(),
      "this run needs about {} MiB of host memory in addition to {}, {} MiB are available\n{}set checkpoint.async to "
      "false, or lower training.offload_layers, optimizer.offload_ratio or data.prefetch",
      mib(e.host_bytes), target.to_string(), mib(e.host_available_bytes.value_or(0)), to_string(e));
  QUENCH_FAIL(ErrorCode::out_of_memory,
              "this run needs about {} MiB on {}, {} MiB are available{}\n{}reduce training.micro_batch_size or "
              "data.seq_len, set training.activation_checkpoint to \"selective\" (and then raise "
              "training.recompute_mlp_layers{}) or to \"full\", lower training.loss_chunk_size{}",
              mib(e.total_bytes), target.to_string(), mib(e.available_bytes.value_or(0)),
              e.memory_limit > 0 ? " under training.memory_limit" : "", to_string(e),
              target.is_cpu() ? "" : " or training.offload_layers",
              target.is_cpu() ? ", or set checkpoint.async to false" : ", or raise optimizer.offload_ratio");
}

}  // namespace quench
