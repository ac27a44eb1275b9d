#pragma once
// Metrics of one logged optimizer step, and its console line.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quench {

// Over all ranks unless noted. Rates and times are averages since the last record.
struct StepMetrics {
  std::int64_t step = 0;         // optimizer steps completed, including this one: 1 .. total_steps
  std::int64_t total_steps = 0;  // 0: unknown
  double loss = 0;               // mean negative log likelihood per valid token, in nats
  double grad_norm = 0;          // global L2 norm before clipping
  double lr = 0;
  double tokens_per_second = 0;
  std::int64_t devices = 1;                 // world size
  std::optional<double> tflops;             // model TFLOP/s per device
  std::optional<double> mfu;                // tflops / peak (known or measured), 0 .. 1
  double float8_share = 0;                  // fraction of model FLOPs with float8 operands, 0 .. 1
  std::optional<double> sol_fraction;       // the same with the peak of each operand dtype, 0 .. 1
  std::uint64_t memory_bytes = 0;           // peak of one device, live tensors
  std::uint64_t memory_reserved_bytes = 0;  // peak reserved by the allocator, including fragmentation
  std::uint64_t memory_capacity_bytes = 0;  // device memory; 0: unknown
  double step_seconds = 0;                  // wall time per step
  double data_share = 0;                    // fraction of step time waiting for data, 0 .. 1
  // Multi-rank: fraction of step time in which rank 0's computation waits for other ranks, 0 .. 1.
  std::optional<double> communication_share;
  std::vector<double> rank_seconds;  // step time of each rank, without that wait
  std::optional<double> eta_seconds;
  std::int64_t tokens_seen = 0;            // target tokens since step 0, without prompts and padding
  std::int64_t skipped_steps = 0;          // skipped steps since step 0
  std::optional<double> expert_imbalance;  // MoE models (ExpertMetrics)
  bool nonfinite = false;                  // NaN or infinite loss or gradient norm in this step
  double unix_time = 0;                    // seconds since 1970, set by MetricsLog when 0

  // memory_bytes / memory_capacity_bytes if the capacity is known.
  [[nodiscard]] std::optional<double> memory_share() const;
};

inline constexpr std::string_view kValidation = "validation";

// Result of one evaluation: validation loss, or a task such as "hellaswag".
struct EvaluationMetrics {
  std::int64_t step = 0;
  std::string name;
  std::vector<std::pair<std::string, double>> values;  // "loss", "perplexity", "acc", ...; in order of display
  std::int64_t tokens = 0;                             // scored target tokens
  double seconds = 0;
  double unix_time = 0;  // as in StepMetrics
};

struct SampleRecord {
  std::int64_t step = 0;
  std::string prompt;
  std::string text;  // continuation without the prompt
  std::vector<std::int32_t> tokens;
  double unix_time = 0;
};

// "step 120/1000  loss 3.2817  grad_norm 0.91  lr 3.0e-04  tok/s 47,960  tflops 731  mfu 73.9%  mem 35.3GiB (25%) eta
// 0:12:31", one line without a line break. Unknown values: n/a. Appended if relevant: skipped steps, and a data wait of
// at least 10% of the step.
[[nodiscard]] std::string format_step_line(const StepMetrics& metrics);

// "validation at step 120  loss 3.3012  perplexity 27.15  tokens 10,240  time 0:00:04"
[[nodiscard]] std::string format_evaluation_line(const EvaluationMetrics& metrics);

// "0:12:31"; hours are not converted to days. "n/a" for a negative or non-finite duration.
[[nodiscard]] std::string format_duration(double seconds);
// 47960 -> "47,960"
[[nodiscard]] std::string format_count(std::int64_t count);

// Current time, seconds since 1970.
[[nodiscard]] double unix_time_now();

}  // namespace quench
