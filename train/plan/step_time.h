#pragma once
// How long a training step will take on a GPU, from rates that were measured on it. docs/guide/scaling.md explains the
// model and compares it with runs.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "nn/model_config.h"
#include "train/plan/training_flops.h"

namespace quench {

// What a training step gets from a device, in the middle of a step: not what each kind of work gets alone.
struct DeviceRates {
  std::string_view device;  // part of the driver's name
  double bf16_flops;        // products of linear layers and of the head, FLOP/s
  double float8_flops;
  double attention_flops;        // with heads of 128 and more, causal products counted once
  double narrow_attention;       // the same with narrower heads
  double memory_bytes;           // passes over memory, read and written, bytes/s
  double gather_bytes;           // all-gather within a node: bytes that a process sends, bytes/s
  double reduce_bytes;           // reduce-scatter and all-reduce
  double seconds_per_sent_byte;  // that computation loses beside a transfer: NCCL's blocks, memory, power
};

// Nothing for a device that nobody has measured.
[[nodiscard]] const DeviceRates* device_rates(std::string_view device_name) noexcept;
// What is planned for where there is no GPU.
inline constexpr std::string_view kPlannedGpu = "NVIDIA H200";

// How processes are spread over machines. The network between them cannot be measured on one.
struct Cluster {
  std::int64_t node_size = 8;   // GPUs of a machine
  double network_bytes = 50e9;  // bytes/s that a GPU sends to other machines: 400 Gbit/s each
  double hop_seconds = 4e-6;    // of one step of a ring between machines
  double local_hop_seconds = 2e-6;
};

// What the processes of one kind of group send in a step: all-gathers or sums.
struct GroupTraffic {
  std::int64_t ranks = 1;
  bool neighbours = true;  // the ranks follow one another; else each is on another machine as far as possible
  std::int64_t calls = 0;
  std::int64_t bytes = 0;  // of one process
  bool reduces = false;
};

struct StepWork {
  TrainingFlops flops_per_token;
  double attention_flops_per_token = 0;  // of flops_per_token
  double recomputed = 0;                 // share of the layers' forward pass that runs twice
  double tokens = 0;                     // of one process in a step
  double activation_bytes = 0;           // passes over activations in a step, read and written
  double update_bytes = 0;               // of parameters, gradients and moments
  bool narrow_heads = false;
  double first_bytes = 0;  // gathered before anything can be computed, of one process
  double last_bytes = 0;   // reduced after everything has been
};

// Seconds of a step.
struct StepTime {
  std::string device;
  double products = 0;  // of linear layers
  double attention = 0;
  double passes = 0;         // over activations
  double update = 0;         // and the gradients' norm
  double communication = 0;  // all of it; beside computation as far as that lasts
  double slowed = 0;         // what computation loses beside it
  double exposed = 0;        // communication that nothing hides
  [[nodiscard]] double computation() const noexcept { return products + attention + passes + update + slowed; }
  [[nodiscard]] double total() const noexcept { return computation() + exposed; }
};

// Bytes of the passes over activations, and whether heads are narrow, of `model` for that many tokens. Dense layers;
// of experts those that a token goes to.
void add_activation_work(const nn::ModelConfig& model, const TrainingFlops& flops, double tokens, StepWork& work);

[[nodiscard]] double communication_seconds(const DeviceRates& rates, const Cluster& cluster,
                                           const GroupTraffic& traffic);
[[nodiscard]] StepTime predict_step(const DeviceRates& rates, const Cluster& cluster, const StepWork& work,
                                    const std::vector<GroupTraffic>& traffic);

[[nodiscard]] Json to_json(const StepTime& time);

}  // namespace quench
