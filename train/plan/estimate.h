#pragma once
// Memory and time estimate of a run. Executes the real model code on the meta device, where the allocator counts
// without allocating (core/device/device.h).

#include <optional>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "core/memory/allocator.h"
#include "distributed/mesh.h"
#include "train/config/resolved_config.h"
#include "train/plan/step_time.h"
#include "train/plan/training_flops.h"

namespace quench {

// Bytes and FLOPs of a run.
struct RunEstimate {
  std::string recipe;  // planned recipe; bf16 for "auto", which is resolved on the device
  bool recipe_assumed = false;
  bool dropped_kept_weights = false;  // by fit_run()
  std::int64_t parameters = 0;
  std::int64_t trained_parameters = 0;      // with training.freeze or training.train; else 0
  std::int64_t active_parameters = 0;       // parameters active per token (MoE)
  TrainingFlops flops_per_token;            // model FLOPs of a training step
  double second_model_flops_per_token = 0;  // forward pass of a teacher or reference; not in flops_per_token
  DType dtype = DType::bf16;                // dtype of GEMMs that are not float8
  std::int64_t tokens_per_step = 0;
  MemoryStats device;                           // model, gradients, optimizer, activations over two training steps
  std::int64_t teacher_bytes = 0;               // part of `device`: a second model's weights on the device at a time
  std::int64_t teacher_logits_bytes = 0;        // part of `device`, at most: the teacher's logits of a chunk
  std::int64_t sampling_cache_bytes = 0;        // at times part of `device`: KV cache of an objective that samples
  std::int64_t gathered_bytes = 0;              // with it, in sharded runs: whole weights and buffers
  std::int64_t reward_model_bytes = 0;          // part of `device`: weights of a reward model
  std::int64_t reference_bytes = 0;             // second model that computes before the first step only
  std::int64_t start_bytes = 0;                 // with it: model and reference before the first step; else 0
  std::int64_t data_bytes = 0;                  // prefetched batches
  std::int64_t staging_bytes = 0;               // host copy for async checkpoints
  std::int64_t offload_bytes = 0;               // activations offloaded to host memory (GPU runs)
  std::int64_t state_offload_bytes = 0;         // optimizer state offloaded to host memory
  std::int64_t second_model_host_bytes = 0;     // weights of second models in host memory
  std::int64_t process_bytes = 0;               // program, libraries, thread stacks, JIT code (CPU runs)
  std::int64_t total_bytes = 0;                 // peak device memory
  std::optional<std::int64_t> available_bytes;  // nullopt for the meta device, and for an absent GPU without limit
  std::int64_t memory_limit = 0;                // training.memory_limit; 0: none
  std::int64_t host_bytes = 0;                  // host memory (GPU runs)
  std::optional<std::int64_t> host_available_bytes;  // nullopt if available_bytes is
  std::int64_t checkpoint_bytes = 0;                 // one checkpoint on disk
  std::int64_t checkpoint_state_bytes = 0;           // optimizer state in it
  std::int64_t checkpoint_count = 0;                 // at most, with the one being written; 0: unlimited
  // Multi-rank: values above are of rank 0, except parameters, tokens_per_step and the checkpoint size.
  std::int64_t ranks = 1;
  std::int64_t shard = 1;
  std::int64_t replicate = 1;
  std::int64_t context = 1;
  std::int64_t expert = 1;
  distributed::MeshSizes mesh;
  int stage = 0;                    // the pipeline stage that needs most memory: the values above are of its first rank
  std::int64_t gather_bytes = 0;    // per rank and step: weight all-gathers
  std::int64_t reduce_bytes = 0;    // gradient reduce-scatters
  std::int64_t context_bytes = 0;   // keys, values, token rows and their gradients in context and tensor groups
  std::int64_t message_bytes = 0;   // hidden states and their gradients, to other pipeline stages
  std::int64_t exchange_bytes = 0;  // expert-parallel all-to-all, with balanced loads
  Cluster cluster;                  // cluster of the prediction in `time`
  std::optional<StepTime> time;     // step time on the GPU, if its rates are known
  // Inputs of its prediction.
  StepWork work;
  std::vector<GroupTraffic> traffic;

  // Contents of context_bytes, in words; empty where there are none.
  [[nodiscard]] std::string_view waited_rows() const noexcept {
    if (mesh.tensor == 1) return mesh.context == 1 ? "" : "keys and values";
    return mesh.context == 1 ? "token rows" : "token rows, keys and values";
  }
  [[nodiscard]] bool fits_device() const noexcept { return !available_bytes || total_bytes <= *available_bytes; }
  // True if no known limit is exceeded.
  [[nodiscard]] bool fits() const noexcept {
    return fits_device() && (!host_available_bytes || host_bytes <= *host_available_bytes);
  }
};

// Part of a run that an estimate simulates on the meta device.
struct Simulation {
  // Few micro-batches and steps, and of a pipeline the first and last stage, for comparing many configs: memory may
  // lack what later steps of offloaded state add. Else until allocations settle.
  bool brief = false;
  std::optional<nn::ModelConfig> model = {};  // in place of the run's
};

// `target`: device of the run, compared by free memory; nothing is allocated on it. An absent GPU is allowed.
[[nodiscard]] RunEstimate estimate_run(const ResolvedConfig& config, Device target, const Cluster& cluster = {},
                                       const Simulation& simulation = {});
// The same; recipe.keep_weights is set to false if it is unset and true by default, but the run fits the device only
// without kept quantized weights. Single processes: several ranks would have to agree.
[[nodiscard]] RunEstimate fit_run(RunConfig& config, Device target, const Cluster& cluster = {});

// True if build and machine support the device.
[[nodiscard]] bool is_present(Device device);

// Free and total memory for a run under its training.memory_limit. nullopt for the meta device, and for an absent GPU
// without limit.
[[nodiscard]] std::optional<DeviceMemory> run_memory(const RunConfig& config, Device device);

[[nodiscard]] std::string to_string(const RunEstimate& estimate);
// Every member, bytes as integers.
[[nodiscard]] Json to_json(const RunEstimate& estimate);

// Throws out_of_memory with the table and remedies if the run does not fit device or host.
void require_memory(const RunEstimate& estimate, Device target);

}  // namespace quench
