// Export at the end of a run, with its validation loss.

#include <cmath>

#include "core/system/log.h"
#include "export/schemes/scheme.h"
#include "nn/optim/weight_average.h"
#include "train/config/recipe_choice.h"
#include "train/evaluation/calibration_data.h"
#include "train/model_folder/model_card.h"
#include "train/run/next_commands.h"
#include "train/run/trainer_run.h"
#include "train/run_export/export_model.h"

namespace quench {

namespace fs = std::filesystem;

namespace {

std::string file_names(const std::vector<DataSource>& sources) {
  std::string names;
  for (const DataSource& source : sources)
    names += (names.empty() ? "" : ", ") + fs::path(source.path).filename().string();
  return names;
}

}  // namespace

ValidationOptions Trainer::Run::validation_options() const {
  return {.micro_batch_size = config.evaluation.micro_batch_size.value_or(config.training.micro_batch_size),
          .batches = config.evaluation.steps,
          .loss_chunk_rows = config.training.loss_chunk_size};
}

void Trainer::Run::use_averages() {
  const auto* averages = dynamic_cast<const nn::WeightAverage*>(optimizer.get());
  QUENCH_CHECK(averages != nullptr, "export.weights {} without averages", kAveragedWeights);
  step->finish_state_copies();
  averages->use();
  if (sharded) sharded->parameters_changed();
}

double Trainer::Run::trained_loss() {
  const bool is_known = ranks->is_single() && objective->validation() == nullptr &&
                        config.export_model->weights != kAveragedWeights && progress.step > resumed_step.value_or(0) &&
                        validation.last && validation.last->step == progress.step;
  if (is_known) return validation.last->loss;
  ValidationOptions options = validation_options();
  options.ranks = ranks.get();
  const double loss = validate(*setup.model, inputs.data.validation, options).values.front().second;
  if (sharded) sharded->end_gathers();
  return loss;
}

ModelFolderReport Trainer::Run::write_export(const std::string& method, std::shared_ptr<const CalibrationData> data) {
  ExportPass pass{.quantization = section_of_method(config.export_model->quantization, method),
                  .calibration = std::move(data),
                  .base_hash = base};
  const std::string named =
      exports_trained_codes(config) && !require_quantizer(method, "export.method").calibrated ? kTrainedCodes : method;
  if (validated_export) {
    pass.validation_data = file_names(config.data.validation);
    pass.accept = [&](const fs::path& folder, ModelFolderReport& report) {
      EvaluationMetrics measured;
      try {
        measured = validate_export(folder, device, inputs.data.validation, validation_options());
      } catch (const std::exception& error) {
        QUENCH_LOG_WARN("export: its validation loss is unknown, since it cannot be read back here: {}", error.what());
        return export_evaluations.empty();
      }
      measured.step = progress.step;
      measured.name = fmt::format("{}{}", kExportEvaluation, named);
      const double loss = measured.values.front().second;
      const bool first_pass = export_evaluations.empty();
      const bool better = first_pass || (std::isfinite(loss) && !(validated_export->kept.loss <= loss));
      report.perplexity_before = std::exp(validated_export->trained);
      report.perplexity = std::exp(loss);
      const ExportValidation::Export other = validated_export->kept;
      if (better) validated_export->kept = {named, loss};
      if (!first_pass) validated_export->discarded = better ? other : ExportValidation::Export{named, loss};
      export_evaluations.insert(better ? export_evaluations.end() : export_evaluations.begin(), std::move(measured));
      return better;
    };
  }
  return export_model(setup, chosen, run_model, std::move(pass), *ranks);
}

void Trainer::Run::export_run() {
  const ExportSection& section = *config.export_model;
  const QuantizationSection& quantization = section.quantization;
  if (section.weights == kAveragedWeights) use_averages();
  if (inputs.data.validation && config.evaluation.interval > 0 && !quantization.scheme.empty())
    validated_export = ExportValidation{.trained = trained_loss(), .kept = {}};
  const bool chooses = quantization.method == kAutoMethod;
  prepare_export(setup, config, *ranks);
  ModelFolderReport report = write_export(chooses ? std::string(quantizers().front().name) : quantization.method,
                                          chooses ? nullptr : calibration);
  const auto is_measured = [&] { return validated_export && !export_evaluations.empty(); };
  const Quantizer& calibrated = require_quantizer(kCalibratedMethod, "export.method");
  std::array<std::int64_t, 1> again{};
  if (chooses && first() && is_measured() && validated_export->is_notable() && !exports_trained_codes(config) &&
      calibrated.problem(require_scheme(quantization.scheme, "export.scheme")).empty())
    again[0] = 1;
  distributed::all_reduce_numbers(*ranks->host, again, distributed::ReduceOp::max, "export");
  if (again[0] != 0) {
    std::shared_ptr<const CalibrationData> data = calibration;
    if (data == nullptr && first())
      data = calibration_rows(*inputs.data.train, quantization.calibration_samples, file_names(config.data.train));
    try {
      const ModelFolderReport second = write_export(std::string(kCalibratedMethod), std::move(data));
      if (is_measured() && validated_export->kept.method == kCalibratedMethod) report = second;
    } catch (const Error& error) {
      QUENCH_LOG_WARN("export: {} failed, the export stays that of {}: {}", kCalibratedMethod,
                      quantizers().front().name, error.what());
    }
  }
  for (EvaluationMetrics& evaluation : export_evaluations) metrics.evaluation(std::move(evaluation));
  if (!is_measured()) validated_export.reset();
  if (!report.layers.empty())
    log_lines(fmt::format("export\n{}  files: {}\n", to_text(report.layers), size_text(report.file_bytes)));
  result.exported = section.folder;
  result.export_validation = validated_export;
}

void Trainer::Run::warn_of_export(const RunEnd& end) const {
  if (!end.export_validation || !end.export_validation->is_notable()) return;
  const QuantizationSection& section = config.export_model->quantization;
  const Quantizer& calibrated = require_quantizer(kCalibratedMethod, "export.method");
  const bool helps = section.method != kAutoMethod && !exports_trained_codes(config) &&
                     !require_quantizer(section.method, "export.method").calibrated &&
                     calibrated.problem(require_scheme(section.scheme, "export.scheme")).empty();
  const std::string command = better_export_command(config, end);
  QUENCH_LOG_WARN("the export loses more than {:.0f}% of perplexity: {}; {}", 100 * kNotableLossRise,
                  describe(*end.export_validation),
                  !helps            ? "more bits (export.scheme) or training for the scheme (a qat recipe) lose less"
                  : command.empty() ? "export.method=auto also tries GPTQ with the training data"
                                    : "to try GPTQ with the training data and keep the better: " + command);
}

}  // namespace quench
