#pragma once
// What a run will need, before it runs: the real model code is executed on the meta device, where the allocator
// keeps its books but nothing has bytes (core/device/device.h), so the plan is the run's own.

#include <optional>
#include <string>

#include "core/json/json.h"
#include "core/memory/allocator.h"
#include "train/config/resolved_config.h"
#include "train/plan/step_time.h"
#include "train/plan/training_flops.h"

namespace quench {

struct RunEstimate {
  std::string recipe;  // what was planned for: bf16 where recipe.name is "auto", which is chosen on the device
  bool recipe_assumed = false;
  std::int64_t parameters = 0;
  std::int64_t active_parameters = 0;  // that one token meets
  TrainingFlops flops_per_token;       // model FLOPs of a training step
  DType dtype = DType::bf16;           // of the products that are not float8
  std::int64_t tokens_per_step = 0;
  MemoryStats device;                           // of model, gradients, optimizer, activations over two training steps
  std::int64_t data_bytes = 0;                  // batches made ahead
  std::int64_t staging_bytes = 0;               // host copy for asynchronous checkpoints
  std::int64_t offload_bytes = 0;               // activations that wait in host memory (GPU runs)
  std::int64_t state_offload_bytes = 0;         // optimizer state that does
  std::int64_t process_bytes = 0;               // program, libraries, thread stacks, generated code (CPU runs)
  std::int64_t total_bytes = 0;                 // peak of the device's memory that the run needs
  std::optional<std::int64_t> available_bytes;  // unknown for a GPU that this machine has not, and for the meta device
  std::int64_t host_bytes = 0;                  // of host memory beside the device's (GPU runs)
  std::optional<std::int64_t> host_available_bytes;  // unknown with the device
  std::int64_t checkpoint_bytes = 0;                 // one saved step on disk
  // Of a run of several processes; all above but parameters and tokens_per_step are of rank 0 then, and of the
  // checkpoint all of it.
  std::int64_t ranks = 1;
  std::int64_t shard = 1;
  std::int64_t replicate = 1;
  std::int64_t expert = 1;
  std::int64_t gather_bytes = 0;    // that a process sends in a step: weights
  std::int64_t reduce_bytes = 0;    // gradients
  std::int64_t exchange_bytes = 0;  // rows to experts and back, where loads are even
  Cluster cluster;                  // what `time` was predicted for
  std::optional<StepTime> time;     // of a step on the GPU, where its rates are known

  [[nodiscard]] bool fits_device() const noexcept { return !available_bytes || total_bytes <= *available_bytes; }
  // As far as is known.
  [[nodiscard]] bool fits() const noexcept {
    return fits_device() && (!host_available_bytes || host_bytes <= *host_available_bytes);
  }
};

// `target` is the device the run is for (its free memory is compared); nothing is allocated on it. It may be a GPU
// where there is none.
[[nodiscard]] RunEstimate estimate_run(const ResolvedConfig& config, Device target, const Cluster& cluster = {});

// Whether this build and this machine have the device.
[[nodiscard]] bool is_present(Device device);

// The table that `quench estimate` prints.
[[nodiscard]] std::string to_string(const RunEstimate& estimate);
[[nodiscard]] Json to_json(const RunEstimate& estimate);

// Throws out_of_memory with the table and what to change when the run does not fit the device or the host.
void require_memory(const RunEstimate& estimate, Device target);

}  // namespace quench
