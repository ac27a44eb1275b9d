#pragma once
// Predicted step time on a GPU from measured rates. Model and validation: docs/guide/scaling.md.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "nn/spec/model_config.h"
#include "train/plan/device_rates.h"
#include "train/plan/planned_gpu.h"
#include "train/plan/training_flops.h"

namespace quench {

// Planning target on a machine without a GPU.
inline constexpr std::string_view kPlannedGpu = "NVIDIA H200";

// Nodes and network. The inter-node rates are assumptions, not measurements.
struct Cluster {
  std::int64_t node_size = 8;   // GPUs per node
  double network_bytes = 50e9;  // inter-node bytes/s per GPU: 400 Gbit/s
  double hop_seconds = 4e-6;    // latency per inter-node ring step
  double local_hop_seconds = 2e-6;
  const PlannedGpu* gpu = nullptr;   // in place of the target's: its name and memory
  std::optional<DeviceRates> rates;  // in place of device_rates()
};

// Traffic of one group kind in a step: all-gathers or reductions.
struct GroupTraffic {
  std::int64_t ranks = 1;
  bool neighbours = true;  // consecutive ranks; else as many nodes as possible
  std::int64_t calls = 0;
  std::int64_t bytes = 0;  // bytes per rank
  bool reduces = false;
  bool waits = false;  // nothing computes meanwhile
};

// Forward pass of a teacher or reference, in high precision, in every micro-batch.
struct SecondModelWork {
  double flops_per_token = 0;
  double attention_flops_per_token = 0;  // part of flops_per_token
  double activation_bytes = 0;           // as StepWork
  bool narrow_heads = false;
  double host_bytes = 0;          // weights of layers copied from host memory per step, while layers compute
  double exposed_host_bytes = 0;  // embedding and head, copied while nothing computes
};

struct StepWork {
  TrainingFlops flops_per_token;
  double attention_flops_per_token = 0;  // part of flops_per_token
  double seq_len = 0;                    // tokens that attention sees at most
  double recomputed = 0;                 // fraction of the layers' forward pass that is recomputed
  double tokens = 0;                     // tokens per rank and step
  double activation_bytes = 0;           // memory traffic over activations per step, read plus write
  double base_bytes = 0;                 // the same over a quantized base, dequantized for each GEMM
  double adapter_bytes = 0;              // the same over inputs and gradients that LoRA's thin GEMMs read
  double update_bytes = 0;               // parameters, gradients and moments
  double streamed_bytes = 0;             // state copied from host memory for the update, and as much back
  bool updates_in_backward = false;      // in the last backward pass, which hides these copies
  double state_bytes = 0;  // state that leaves in the first forward pass and comes in the last backward pass
  double kept_bytes = 0;   // activations of a micro-batch that leave in its forward pass and come in its backward
  double micro_batches = 1;
  double exchange_bytes = 0;  // expert-parallel all-to-all, sent by a rank
  std::int64_t exchange_ranks = 1;
  double kept_attention = 0;       // share of the layers that do not compute attention again
  double recomputed_products = 0;  // FLOPs a token of GEMMs that are recomputed alone (recompute_mlp_layers)
  bool narrow_heads = false;
  double bubble = 0;       // time in which a pipeline stage waits for others, in that of its passes
  double first_bytes = 0;  // all-gathered before any computation, per rank
  double last_bytes = 0;   // reduced after all computation
  SecondModelWork second_model;
};

// Seconds per step.
struct StepTime {
  std::string device;
  double products = 0;
  double attention = 0;
  double passes = 0;         // memory-bound kernels over activations
  double update = 0;         // including the gradient norm
  double second_model = 0;   // forward pass of a teacher or reference
  double communication = 0;  // total, including overlapped
  double slowed = 0;         // slowdown of overlapped computation
  double exposed = 0;        // not overlapped
  double exchange = 0;       // expert-parallel all-to-all, which nothing overlaps
  double bubble = 0;         // a pipeline stage waits for others
  double host_copies = 0;    // copies to and from host memory that computation does not hide
  [[nodiscard]] double computation() const noexcept {
    return products + attention + passes + update + second_model + slowed;
  }
  [[nodiscard]] double total() const noexcept { return computation() + exposed + exchange + bubble + host_copies; }
};

// Adds activation traffic and head width of `model` for that many tokens, with those of MTP layers. MoE layers: only
// active experts.
void add_activation_work(const nn::ModelConfig& model, const TrainingFlops& flops, double tokens, StepWork& work);
// Work of a forward pass over that many tokens of sequences of `seq_len`, as a third of a training step's.
[[nodiscard]] SecondModelWork second_model_work(const nn::ModelConfig& model, std::int64_t seq_len, double tokens);

[[nodiscard]] double communication_seconds(const DeviceRates& rates, const Cluster& cluster,
                                           const GroupTraffic& traffic);
[[nodiscard]] StepTime predict_step(const DeviceRates& rates, const Cluster& cluster, const StepWork& work,
                                    const std::vector<GroupTraffic>& traffic);

[[nodiscard]] Json to_json(const StepTime& time);

}  // namespace quench
