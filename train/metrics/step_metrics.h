#pragma once
// What one logged optimizer step measured, and its line on the console.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quench {

// Values are over all ranks unless said otherwise. Rates and times are averages over the steps since the last record.
struct StepMetrics {
  std::int64_t step = 0;         // updates done, this one included: 1 .. total_steps
  std::int64_t total_steps = 0;  // 0: unknown
  double loss = 0;               // mean negative log likelihood per valid token, in nats
  double grad_norm = 0;          // global L2 norm before clipping
  double lr = 0;                 // rate of this update
  double tokens_per_second = 0;
  std::int64_t devices = 1;                 // ranks that share the work
  std::optional<double> tflops;             // model TFLOP/s of one device
  std::optional<double> mfu;                // tflops over the device's known or measured peak, 0 .. 1
  double float8_share = 0;                  // share of the model FLOPs whose operands are float8, 0 .. 1
  std::optional<double> sol_fraction;       // the same with every type of operands at its own peak, 0 .. 1
  std::uint64_t memory_bytes = 0;           // peak of one device: what tensors held
  std::uint64_t memory_reserved_bytes = 0;  // peak of what the allocator had from it, gaps between tensors included
  std::uint64_t memory_capacity_bytes = 0;  // what that device has; 0: unknown
  double step_seconds = 0;                  // wall time of one step
  double data_share = 0;                    // share of that time spent waiting for the batch, 0 .. 1
  // Of several ranks. Computation of the first one stood still for others in this share of the time, 0 .. 1.
  std::optional<double> communication_share;
  std::vector<double> rank_seconds;        // of a step of each rank, without that
  std::optional<double> eta_seconds;       // to the end of the run
  std::int64_t tokens_seen = 0;            // targets since step 0: without prompts and padding
  std::int64_t skipped_steps = 0;          // updates dropped since step 0
  std::optional<double> expert_imbalance;  // of a model with experts (ExpertMetrics)
  bool nonfinite = false;                  // this step's loss or gradient norm was NaN or infinite
  double unix_time = 0;                    // seconds since 1970, set by MetricsLog when 0

  // memory_bytes / memory_capacity_bytes where the capacity is known.
  [[nodiscard]] std::optional<double> memory_share() const;
};

// The name of the validation loss among evaluations.
inline constexpr std::string_view kValidation = "validation";

// One evaluation: the validation loss, or a task such as "hellaswag".
struct EvaluationMetrics {
  std::int64_t step = 0;
  std::string name;
  std::vector<std::pair<std::string, double>> values;  // "loss", "perplexity", "acc", ...; in order of display
  std::int64_t tokens = 0;                             // scored target tokens
  double seconds = 0;
  double unix_time = 0;  // as in StepMetrics
};

// A text generated during or after training.
struct SampleRecord {
  std::int64_t step = 0;
  std::string prompt;
  std::string text;                  // continuation, without the prompt
  std::vector<std::int32_t> tokens;  // of the continuation
  double unix_time = 0;
};

// "step 120/1000  loss 3.2817  grad_norm 0.91  lr 3.0e-04  tok/s 47,960  tflops 731  mfu 73.9%  mem 35.3GiB (25%)
//  eta 0:12:31", on one line without a line break. Unknown values print n/a. Notable facts follow the eta: the number
// of skipped steps when there are any, and the data wait when it takes a tenth of the step or more.
[[nodiscard]] std::string format_step_line(const StepMetrics& metrics);

// "validation at step 120  loss 3.3012  perplexity 27.15  tokens 10,240  time 0:00:04"
[[nodiscard]] std::string format_evaluation_line(const EvaluationMetrics& metrics);

// "0:12:31"; hours are not folded into days. "n/a" for a negative or non-finite duration.
[[nodiscard]] std::string format_duration(double seconds);
// 47960 -> "47,960"
[[nodiscard]] std::string format_count(std::int64_t count);

// Seconds since 1970, now.
[[nodiscard]] double unix_time_now();

}  // namespace quench
