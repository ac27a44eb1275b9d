#pragma once
// Metrics of one optimizer step, and its console line.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json/json.h"

namespace quench {

// Over all ranks unless noted; rates and times since the last record.
struct StepMetrics {
  std::int64_t step = 0;         // completed, including this one: 1 .. total_steps
  std::int64_t total_steps = 0;  // 0: unknown
  double loss = 0;               // objective's loss; next-token cross-entropy: nats per valid token
  double grad_norm = 0;          // global L2, before clipping
  double lr = 0;
  double tokens_per_second = 0;
  std::int64_t devices = 1;                 // world size
  std::optional<double> tflops;             // model TFLOP/s per device
  std::optional<double> mfu;                // tflops / peak (known or measured)
  double float8_share = 0;                  // fraction of model FLOPs with float8 operands
  std::optional<double> sol_fraction;       // with the peak of each operand dtype
  std::uint64_t memory_bytes = 0;           // peak of one device, live tensors
  std::uint64_t memory_reserved_bytes = 0;  // peak of the allocator, with fragmentation
  std::uint64_t memory_capacity_bytes = 0;  // device memory; 0: unknown
  double step_seconds = 0;                  // wall time
  double data_share = 0;                    // fraction of step time waiting for data
  // Fraction of step time in which rank 0 waits for other ranks.
  std::optional<double> communication_share;
  // Mean fraction of step time in which a pipeline stage waits for the results of others.
  std::optional<double> bubble;
  std::vector<double> rank_seconds;  // step time by rank, without these waits
  std::optional<double> eta_seconds;
  std::int64_t tokens_seen = 0;                           // targets since step 0, without prompts and padding
  std::int64_t skipped_steps = 0;                         // since step 0
  std::optional<double> expert_imbalance;                 // MoE (ExpertMetrics)
  std::vector<std::pair<std::string, double>> objective;  // metrics of the training objective, by name
  bool nonfinite = false;                                 // loss or gradient norm of this step
  double unix_time = 0;                                   // set by MetricsLog when 0

  // If the capacity is known.
  [[nodiscard]] std::optional<double> memory_share() const;
};

inline constexpr std::string_view kValidation = "validation";
// Begins the names of evaluations of exports, which end with their methods; the last is of the export that is kept.
inline constexpr std::string_view kExportEvaluation = "export_";

// Validation loss, or a task such as "hellaswag".
struct EvaluationMetrics {
  std::int64_t step = 0;
  std::string name;
  std::vector<std::pair<std::string, double>> values;  // "loss", "perplexity", "acc", ...; display order
  std::int64_t tokens = 0;                             // scored targets
  double seconds = 0;
  double unix_time = 0;  // see StepMetrics
};

struct SampleRecord {
  std::int64_t step = 0;
  std::string prompt;
  std::string text;  // without the prompt
  std::vector<std::int32_t> tokens;
  double unix_time = 0;
  Json::Object figures{};  // further keys of the record
};

// "step 120/1000  loss 3.2817  grad_norm 0.91  lr 3.0e-04  tok/s 47,960  tflops 731  mfu 73.9%  mem 35.3GiB (25%) eta
// 0:12:31" without a line break. Unknown values: n/a. Appended if relevant: skipped steps, data wait of at least 10%.
[[nodiscard]] std::string format_step_line(const StepMetrics& metrics);

// "validation at step 120  loss 3.3012  perplexity 27.15  tokens 10,240  time 0:00:04"
[[nodiscard]] std::string format_evaluation_line(const EvaluationMetrics& metrics);

// "0:12:31"; hours are not converted to days. "n/a" if negative or non-finite.
[[nodiscard]] std::string format_duration(double seconds);
// 47960 -> "47,960"
[[nodiscard]] std::string format_count(std::int64_t count);

[[nodiscard]] double unix_time_now();

}  // namespace quench
