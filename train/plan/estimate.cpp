#include "train/plan/estimate.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <unordered_set>

#include "core/device/planned_device.h"
#include "core/memory/memory_limit.h"
#include "train/check/check.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/snapshot.h"
#include "train/metrics/step_metrics.h"
#include "train/plan/stage_estimates.h"
#include "train/plan/step_traffic.h"
#include "train/plan/step_work.h"
#include "train/session/data_setup.h"
#include "train/session/parallel_setup.h"
#include "train/session/run_session.h"
#include "train/session/trained_parameters.h"
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
  return resident * ::sysconf(_SC_PAGESIZE);
}

// With offloaded optimizer state: simulate until this many steps without new allocations.
constexpr std::int64_t kQuietSteps = 16;
constexpr std::int64_t kMostSteps = 96;
constexpr std::int64_t kPlannedMicroBatches = 4;
// Without offloaded state: limit of simulated micro-batches, bounding the planning time of absurd configs.
constexpr std::int64_t kMostMicroBatches = 256;
// Brief simulation: the first, an inner and the last micro-batch.
constexpr std::int64_t kBriefMicroBatches = 3;
constexpr std::int64_t kBriefSteps = 4;

// Non-tensor memory of a CPU process's first steps: JIT code of GEMMs, thread stacks, log buffers. Measured 3.5 to 4.5
// MiB on models of 0.9 to 110 million parameters.
constexpr std::int64_t kFirstStepBytes = std::int64_t{4} << 20;

// Weights of a second model that travel from host memory; null: none.
const nn::WeightOffloader* offloaded_teacher(const RunSession& session) {
  const Objective* objective = session.objective()->training();
  return objective != nullptr ? objective->weight_offloader() : nullptr;
}

// Ids, labels and positions; of a part also those of the whole, its tokens, keys and two readers of each key.
std::int64_t host_batch_bytes(const RunConfig& config) {
  const std::int64_t whole = config.training.micro_batch_size * config.data.seq_len * 4,
                     parts = config.parallel.context;
  return parts == 1 ? 3 * whole : 3 * whole + 4 * (whole / parts) + (whole + whole / (2 * parts)) + 2 * whole;
}

// GPU of the rates: the planned one, else the target if present, else the measured one.
std::string gpu_name(Device target, const Cluster& cluster) {
  if (cluster.gpu != nullptr) return std::string(cluster.gpu->name);
  return is_present(target) ? backend(target.type).device_name(target) : std::string(kPlannedGpu);
}

std::int64_t micro_batches(const RunConfig& config) {
  return accumulation_steps(config, config.parallel.data_ranks());
}

// What the config alone says.
RunEstimate planned_run(const ResolvedConfig& resolved, const Cluster& cluster) {
  const RunConfig& config = *resolved;
  RunEstimate e;
  e.cluster = cluster;
  e.recipe = config.recipe.name;
  e.recipe_assumed = resolved.choice().has_value();
  e.ranks = config.parallel.ranks;
  e.mesh = mesh_sizes(config);
  e.shard = e.mesh.shard;
  e.replicate = config.parallel.replicate;
  e.context = config.parallel.context;
  e.expert = config.parallel.expert;
  e.dtype = config.training.dtype;
  e.tokens_per_step = global_batch_size(config) * config.data.seq_len;
  e.data_bytes = (micro_batches(config) + config.data.prefetch) * host_batch_bytes(config);
  e.memory_limit = parse_memory_size(config.training.memory_limit).value_or(0);
  return e;
}

// Sharding, optimizer, objective and step, and the bytes of a teacher.
void add_stages(RunSession& session, RunEstimate& e) {
  const Allocator& plan = Allocator::of(kMeta);
  const RunConfig& config = session.config();
  session.share();
  session.add_optimizer();
  const std::int64_t own_bytes = plan.stats().current;
  session.add_objective();
  e.teacher_bytes = plan.stats().current - own_bytes;
  if (const nn::WeightOffloader* weights = offloaded_teacher(session)) {
    e.teacher_bytes += weights->device_bytes();
    e.second_model_host_bytes = weights->host_bytes();
  }
  const LmHeadLossOptions loss = session.loss();
  if (session.objective()->has_second_logits())
    e.teacher_logits_bytes = std::min(loss.chunk_rows, micro_batch_tokens(config)) * session.model_config().vocab_size *
                             static_cast<std::int64_t>(byte_size(loss.f32_logits ? DType::f32 : e.dtype));
  session.add_step();
}

// Micro-batches by which steps of a schedule grow: interleaved stages take as many as there are stages at once.
std::int64_t micro_batch_unit(const RunConfig& config) {
  return config.parallel.chunks() > 1 ? config.parallel.pipeline : 1;
}

// At most `wanted`, but as many as fill a pipeline and come after that.
std::int64_t simulated_micro_batches(const RunConfig& config, std::int64_t wanted) {
  const std::int64_t stages = config.parallel.pipeline, unit = micro_batch_unit(config);
  const std::int64_t filled = stages == 1 ? 1 : unit > 1 ? 2 * stages : stages + 2;
  return std::min(micro_batches(config), std::max(wanted, filled) / unit * unit);
}

// The traffic counted is this step's.
void simulate_step(RunSession& session, std::int64_t count, std::int64_t number, RunEstimate& e) {
  const RunConfig& config = session.config();
  const ObjectiveRuntime& runtime = objective_runtime(config);
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < count; ++i) {
    Batch& batch = batches.emplace_back(meta_batch(config.training.micro_batch_size, config.data.seq_len));
    if (runtime.arrange != nullptr) runtime.arrange(config, batch);
    batch = part_of(std::move(batch), sequence_part(session.ranks()));
  }
  if (Objective* objective = session.objective()->training(); objective != nullptr) {
    const SamplingBytes sampling = objective->plan_batches(micro_batches(config) * config.training.micro_batch_size);
    e.sampling_cache_bytes = sampling.cache;
    e.gathered_bytes = std::max(e.gathered_bytes, sampling.gathered);  // later steps find buffers of earlier ones
    e.reward_model_bytes = sampling.judge;
  }
  if (!session.ranks().is_single()) reset_traffic(session.ranks());
  const StepUpdate update{.lr = 0, .number = number};
  (void)session.step()->accumulate(batches, number, update);
  session.step()->apply(update.lr, update.number);
}

// Runs steps on the meta device; returns the micro-batches of each. The first step differs from all others; with
// offloaded state, allocations settle after several steps. Inner micro-batches are identical.
std::int64_t simulate_steps(RunSession& session, bool brief, RunEstimate& e) {
  const RunConfig& config = session.config();
  const TrainStep& step = *session.step();
  const bool travels = step.offloaded_state_bytes() > 0;
  const std::int64_t count = simulated_micro_batches(config, brief     ? kBriefMicroBatches
                                                             : travels ? kPlannedMicroBatches
                                                                       : kMostMicroBatches);
  const std::int64_t most = !travels ? 2 : brief ? kBriefSteps : kMostSteps;
  std::int64_t segments = 0, quiet = 0;
  for (std::int64_t s = 1; s <= most && quiet < kQuietSteps; ++s) {
    simulate_step(session, count, s, e);
    const MemoryStats stats = Allocator::of(kMeta).stats();
    quiet = stats.segment_count == segments ? quiet + 1 : 0;
    segments = stats.segment_count;
  }
  return count;
}

// Traffic of a step, from the last one of `simulated` micro-batches.
std::vector<GroupTraffic> step_traffic(RunSession& session, std::int64_t simulated, RunEstimate& e) {
  const distributed::Ranks& ranks = session.ranks();
  if (ranks.is_single()) return {};
  StepTraffic traffic = count_traffic(ranks, e.cluster);
  const std::int64_t count = micro_batches(session.config());
  const std::int64_t unit = micro_batch_unit(session.config());
  if (count > simulated && simulated > unit) {
    simulate_step(session, simulated - unit, kMostSteps + 1, e);
    extrapolate(traffic, count_traffic(ranks, e.cluster), unit, count - simulated);
  }
  e.gather_bytes = bytes_of(traffic.gathers);
  e.reduce_bytes = bytes_of(traffic.sums);
  e.context_bytes = waited_bytes(traffic.gathers) + waited_bytes(traffic.sums);
  e.exchange_bytes = bytes_of(traffic.exchanges);
  e.message_bytes = bytes_of(traffic.messages);
  return traffic.transfers();
}

// Parameters, FLOPs, and bytes that are offloaded.
void add_model(const RunSession& session, RunEstimate& e) {
  const RunConfig& config = session.config();
  const nn::ModelConfig& model = session.model_config();
  e.offload_bytes = session.step()->offloaded_activation_bytes();
  e.state_offload_bytes = session.step()->offloaded_state_bytes();
  e.parameters = model.parameter_count();
  if (!config.training.freeze.empty() || !config.training.train.empty())
    e.trained_parameters = trained_elements(session.model());
  e.active_parameters = model.active_parameter_count();
  e.flops_per_token = training_flops(session.setup(), config.data.seq_len);
}

void add_checkpoint(const RunConfig& config, std::span<const CheckpointTensor> tensors, RunEstimate& e) {
  if (config.checkpoint.enable && config.checkpoint.async) e.staging_bytes = snapshot_bytes(tensors);
  std::unordered_set<std::string_view> counted;  // a rank may have several slices of a tensor
  for (const CheckpointTensor& tensor : tensors) {
    if (!counted.insert(tensor.name).second) continue;
    const auto bytes = static_cast<std::int64_t>(row_bytes(
        tensor.global_shape, tensor.data.dtype(), tensor.global_shape.rank() == 0 ? 1 : tensor.global_shape[0]));
    e.checkpoint_bytes += bytes;
    if (tensor.name.starts_with("optimizer.")) e.checkpoint_state_bytes += bytes;
  }
  if (config.checkpoint.keep_latest > 0)
    e.checkpoint_count = config.checkpoint.keep_latest + 1 + (config.checkpoint.keep_best ? 1 : 0);
}

// Work of a model whose forward pass every micro-batch adds.
void add_second_model(const RunSession& session, StepWork& work, RunEstimate& e) {
  const RunConfig& config = session.config();
  const ObjectiveRuntime& runtime = objective_runtime(config);
  if (runtime.second_model == nullptr) return;
  const std::optional<nn::ModelConfig> second = runtime.second_model(config, session.model_config());
  if (!second) return;
  work.second_model = second_model_work(*second, config.data.seq_len, work.tokens);
  if (const nn::WeightOffloader* weights = offloaded_teacher(session)) {
    work.second_model.host_bytes = static_cast<double>(weights->layer_bytes() * micro_batches(config));
    work.second_model.exposed_host_bytes = static_cast<double>(weights->exposed_bytes() * micro_batches(config));
  }
  e.second_model_flops_per_token = work.second_model.flops_per_token;
}

// Sums, and what is available.
void add_totals(const RunConfig& config, Device target, RunEstimate& e) {
  if (target.is_cpu()) e.process_bytes = resident_bytes() + kFirstStepBytes;
  // Segments, not blocks: fragmentation is resident too.
  e.total_bytes = std::max(e.device.peak_reserved, e.start_bytes) +
                  (target.is_cpu() ? e.data_bytes + e.staging_bytes + e.second_model_host_bytes + e.process_bytes : 0);
  const PlannedGpu* gpu = e.cluster.gpu;
  if (gpu != nullptr) {
    const DeviceMemory whole{gpu->memory_bytes, gpu->memory_bytes};
    const std::int64_t limit = e.memory_limit > 0 ? std::min(e.memory_limit, gpu->memory_bytes) : gpu->memory_bytes;
    e.available_bytes = within_limit(whole, 0, limit).free_bytes;
  } else if (const auto memory = run_memory(config, target)) {
    e.available_bytes = memory->free_bytes;
  }
  // Streamed state is made in pinned memory as a whole; what belongs on the device leaves its blocks to the pinned
  // pool.
  const double share = config.optimizer.offload_streamed ? config.optimizer.offload_ratio : 1.0;
  const auto pinned_state =
      share > 0 ? static_cast<std::int64_t>(static_cast<double>(e.state_offload_bytes) / share) : e.state_offload_bytes;
  if (!target.is_cpu())
    e.host_bytes = e.data_bytes + e.staging_bytes + e.offload_bytes + pinned_state + e.second_model_host_bytes;
  if (is_present(target) && gpu == nullptr)
    e.host_available_bytes = backend(DeviceType::cpu).memory(Device{}).free_bytes;
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

namespace {

RunEstimate estimate_stage(const ResolvedConfig& resolved, Device target, const Cluster& cluster,
                           const Simulation& simulation, int stage) {
  const RunConfig& config = *resolved;
  require_on_device(config, target);
  RunEstimate e = planned_run(resolved, cluster);
  const std::shared_ptr<const distributed::Ranks> ranks = planned_ranks(config, stage);
  const ObjectiveRuntime& runtime = objective_runtime(config);
  const SecondModelBytes reference =
      runtime.start_bytes == nullptr ? SecondModelBytes{} : runtime.start_bytes(config, *ranks);
  e.reference_bytes = reference.device;
  e.second_model_host_bytes = reference.host;
  Allocator& plan = Allocator::of(kMeta);
  plan.trim();
  plan.reset_peak();
  {
    const PlannedDevice planned(target.type, is_hopper(gpu_name(target, cluster)));
    RunSession session(resolved, {.device = kMeta, .target = target, .model = simulation.model, .ranks = ranks});
    add_stages(session, e);
    // Bytes of the model and its optimizer, before the first step.
    const std::int64_t at_start = plan.stats().current;
    const std::int64_t simulated = simulate_steps(session, simulation.brief, e);
    e.device = plan.stats();
    if (e.reference_bytes > 0) e.start_bytes = at_start + e.reference_bytes;
    e.traffic = step_traffic(session, simulated, e);
    add_model(session, e);
    std::vector<CheckpointTensor> tensors = training_tensors(session.model(), *session.optimizer());
    if (session.setup().scaling) add_scaling(tensors, *session.setup().scaling);
    add_checkpoint(config, tensors, e);
    e.work = step_work(config, session.setup(), tensors, micro_batches(config), e);
    add_second_model(session, e.work, e);
  }
  const DeviceRates* measured = target.type == DeviceType::cuda ? device_rates(gpu_name(target, cluster)) : nullptr;
  const DeviceRates* rates = cluster.rates ? &*cluster.rates : measured;
  if (rates != nullptr && e.dtype == DType::bf16) e.time = predict_step(*rates, cluster, e.work, e.traffic);
  plan.trim();
  add_totals(config, target, e);
  return e;
}

}  // namespace

RunEstimate estimate_run(const ResolvedConfig& resolved, Device target, const Cluster& cluster,
                         const Simulation& simulation) {
  std::vector<RunEstimate> stages;
  const int last = mesh_sizes(*resolved).pipeline - 1;
  // The first stage holds most micro-batches, the last one has the head.
  for (int stage = 0; stage <= last; ++stage)
    if (!simulation.brief || stage == 0 || stage == last)
      stages.push_back(estimate_stage(resolved, target, cluster, simulation, stage));
  return of_stages(std::move(stages));
}

RunEstimate fit_run(RunConfig& config, Device target, const Cluster& cluster) {
  RunEstimate kept = estimate_run(ResolvedConfig(config), target, cluster);
  const auto keys = recipes::find_recipe(kept.recipe).capabilities.keys;
  if (kept.fits_device() || config.parallel.ranks > 1 || config.recipe.keep_weights || kept.recipe_assumed ||
      std::ranges::count(keys, "keep_weights") == 0 || !recipe_options(config, target).keep_weights)
    return kept;
  RunConfig without = config;
  without.recipe.keep_weights = false;
  RunEstimate estimate = estimate_run(ResolvedConfig(without), target, cluster);
  if (!estimate.fits_device()) return kept;
  config = std::move(without);
  estimate.dropped_kept_weights = true;
  return estimate;
}

}  // namespace quench
