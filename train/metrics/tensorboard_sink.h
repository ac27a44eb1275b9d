#pragma once
// TensorBoard metrics with torchtitan's tags, for comparison of runs:
//   loss_metrics/global_avg_loss  grad_norm  lr  throughput(tps) [per device]  tflops  mfu(%)
//   float8_flops(%)  sol_fraction(%) [and light_share(%), its former name]  time_metrics/end_to_end(s)
//   time_metrics/data_loading(s)  time_metrics/data_loading(%)  memory/max_active and memory/max_reserved, each (GiB)
//   and (%)  n_tokens_seen  skipped_steps
//   validation_metrics/<value> for the evaluation "validation", <evaluation>/<value> for others
//   health/worst_sqnr(dB)  health/most_saturated(%)  health/most_underflow(%), and per layer and operand
//   health/<layer>/<operand>/amax, sqnr(dB), saturated(%), underflow(%)
// Unknown values and the SQNR of lossless operands are omitted. Samples and config: text panel.

#include <filesystem>
#include <optional>

#include "train/metrics/event_file.h"
#include "train/metrics/metrics_sink.h"

namespace quench {

class TensorBoardSink final : public MetricsSink {
 public:
  // resume_step: later data of earlier files are dropped. config: text panel, if not empty. Throws when the file cannot
  // be created.
  TensorBoardSink(const std::filesystem::path& folder, std::optional<std::int64_t> resume_step, double unix_time,
                  std::string_view config = {});

  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  void step(const StepMetrics& metrics) override;
  void evaluation(const EvaluationMetrics& metrics) override;
  void sample(const SampleRecord& sample) override;
  void health(const HealthMetrics& metrics) override;
  void rewind(std::int64_t step) override { file_.restart(step + 1, unix_time_now()); }
  void finish() override { file_.close(); }

 private:
  EventFile file_;
  std::string name_;
};

}  // namespace quench
