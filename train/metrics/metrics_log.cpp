#include "train/metrics/metrics_log.h"

#include <exception>

#include "core/system/log.h"
#include "train/metrics/json_lines_sink.h"
#include "train/metrics/run_files.h"
#include "train/metrics/tensorboard_sink.h"

namespace quench {
namespace {

template <class Record>
void stamp(Record& record) {
  if (record.unix_time == 0) record.unix_time = unix_time_now();
}

}  // namespace

MetricsLog::MetricsLog(const MetricsLogOptions& options) {
  if (options.console) open("standard output", [&] { return std::make_unique<ConsoleSink>(*options.console); });
  if (options.jsonl)
    open(run_files::kMetrics, [&] { return std::make_unique<JsonLinesSink>(options.folder, options.resume_step); });
  if (options.tensorboard)
    open("TensorBoard", [&] {
      return std::make_unique<TensorBoardSink>(options.folder / run_files::kTensorBoardFolder, options.resume_step,
                                               unix_time_now(), options.config);
    });
}

template <class Open>
void MetricsLog::open(std::string_view name, Open&& open_sink) {
  try {
    add(open_sink());
  } catch (const std::exception& error) {
    QUENCH_LOG_WARN("metrics are not written to {}: {}", name, error.what());
  }
}

template <class Call>
void MetricsLog::each(Call&& call) {
  std::erase_if(sinks_, [&](const std::unique_ptr<MetricsSink>& sink) {
    try {
      call(*sink);
      return false;
    } catch (const std::exception& error) {
      QUENCH_LOG_WARN("metrics are no longer written to {}: {}; training continues", sink->name(), error.what());
      return true;
    }
  });
}

void MetricsLog::step(StepMetrics metrics) {
  stamp(metrics);
  each([&](MetricsSink& sink) { sink.step(metrics); });
}

void MetricsLog::evaluation(EvaluationMetrics metrics) {
  stamp(metrics);
  each([&](MetricsSink& sink) { sink.evaluation(metrics); });
}

void MetricsLog::sample(SampleRecord sample) {
  stamp(sample);
  each([&](MetricsSink& sink) { sink.sample(sample); });
}

void MetricsLog::health(HealthMetrics metrics) {
  stamp(metrics);
  each([&](MetricsSink& sink) { sink.health(metrics); });
}

void MetricsLog::experts(ExpertMetrics metrics) {
  stamp(metrics);
  each([&](MetricsSink& sink) { sink.experts(metrics); });
}

void MetricsLog::event(RunEvent event) {
  stamp(event);
  each([&](MetricsSink& sink) { sink.event(event); });
}

void MetricsLog::progress(const Progress& progress) {
  each([&](MetricsSink& sink) { sink.progress(progress); });
}

void MetricsLog::rewind(std::int64_t step) {
  each([&](MetricsSink& sink) { sink.rewind(step); });
}

void MetricsLog::finish() {
  each([](MetricsSink& sink) { sink.finish(); });
}

}  // namespace quench
