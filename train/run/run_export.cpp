#include "train/run/run_export.h"

#include <array>
#include <cmath>
#include <filesystem>

#include "core/system/log.h"
#include "export/schemes/scheme.h"
#include "nn/optim/weight_average.h"
#include "train/config/recipe_choice.h"
#include "train/model_folder/model_card.h"
#include "train/run/next_commands.h"

namespace quench {

namespace fs = std::filesystem;

namespace {

std::string file_names(const std::vector<DataSource>& sources) {
  std::string names;
  for (const DataSource& source : sources)
    names += (names.empty() ? "" : ", ") + fs::path(source.path).filename().string();
  return names;
}

const Quantizer& calibrated_quantizer() {
  return require_quantizer(kCalibratedMethod, "export.method");
}

// Whether the calibrated method suits the export's scheme, and the codes are not those of training.
bool suits_calibration(const RunConfig& config) {
  return !exports_trained_codes(config) &&
         calibrated_quantizer()
             .problem(require_scheme(config.export_model->quantization.scheme, "export.scheme"))
             .empty();
}

std::shared_ptr<const CalibrationData> read_calibration(const RunSession& session, const DataSetup& inputs) {
  std::shared_ptr<const CalibrationData> data;
  const auto& section = session.config().export_model;
  if (!section) return data;
  distributed::together(session.ranks(), "calibration data", [&] {
    if (!session.ranks().is_first()) return;
    try {
      data = read_calibration_data(section->quantization, inputs.tokenizer.get(), session.model_config(),
                                   "the run has no tokenizer (data.tokenizer)");
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("export.calibration: {}", error.what()));
    }
  });
  return data;
}

}  // namespace

ValidationOptions validation_options(const RunConfig& config) {
  return {.micro_batch_size = config.evaluation.micro_batch_size.value_or(config.training.micro_batch_size),
          .batches = config.evaluation.steps,
          .loss_chunk_rows = config.training.loss_chunk_size};
}

RunExport::RunExport(RunSession& session, RunRecord& record, const DataSetup& data, const RunModel& model)
    : session_(session), record_(record), data_(data), model_(model), calibration_(read_calibration(session, data)) {}

void RunExport::use_averages() {
  const auto* averages = dynamic_cast<const nn::WeightAverage*>(session_.optimizer());
  QUENCH_CHECK(averages != nullptr, "export.weights {} without averages", kAveragedWeights);
  session_.step()->finish_state_copies();
  averages->use();
  if (session_.sharded()) session_.sharded()->parameters_changed();
}

double RunExport::trained_loss(std::int64_t step, std::int64_t first_step) {
  const auto& last = record_.validation().last;
  const bool is_known = session_.ranks().is_single() && session_.objective()->validation() == nullptr &&
                        section().weights != kAveragedWeights && step > first_step && last && last->step == step;
  if (is_known) return last->loss;
  ValidationOptions options = validation_options(session_.config());
  options.ranks = &session_.ranks();
  options.stages = session_.stages();
  const double loss = validate(session_.model(), data_.validation, options).values.front().second;
  if (session_.sharded()) session_.sharded()->end_gathers();
  return loss;
}

bool RunExport::measure(const fs::path& folder, const std::string& method, std::int64_t step,
                        ModelFolderReport& report) {
  EvaluationMetrics measured;
  try {
    measured = validate_export(folder, session_.device(), data_.validation, validation_options(session_.config()));
  } catch (const std::exception& error) {
    QUENCH_LOG_WARN("export: its validation loss is unknown, since it cannot be read back here: {}", error.what());
    return evaluations_.empty();
  }
  measured.step = step;
  measured.name = fmt::format("{}{}", kExportEvaluation, method);
  const double loss = measured.values.front().second;
  const bool is_first = evaluations_.empty();
  const bool is_better = is_first || (std::isfinite(loss) && !(validation_->kept.loss <= loss));
  report.perplexity_before = std::exp(validation_->trained);
  report.perplexity = std::exp(loss);
  const ExportValidation::Export other = validation_->kept;
  if (is_better) validation_->kept = {method, loss};
  if (!is_first) validation_->discarded = is_better ? other : ExportValidation::Export{method, loss};
  evaluations_.insert(is_better ? evaluations_.end() : evaluations_.begin(), std::move(measured));
  return is_better;
}

ModelFolderReport RunExport::write_pass(const std::string& method, std::shared_ptr<const CalibrationData> calibration,
                                        std::int64_t step) {
  ExportPass pass{.quantization = section_of_method(section().quantization, method),
                  .calibration = std::move(calibration)};
  if (validation_) {
    const bool has_trained_codes =
        exports_trained_codes(session_.config()) && !require_quantizer(method, "export.method").calibrated;
    pass.validation_data = file_names(session_.config().data.validation);
    pass.accept = [this, step, name = has_trained_codes ? std::string(kTrainedCodes) : method](
                      const fs::path& folder, ModelFolderReport& report) {
      return measure(folder, name, step, report);
    };
  }
  return export_model(session_, model_, std::move(pass));
}

bool RunExport::tries_calibration() const {
  std::array<std::int64_t, 1> tries{};
  if (section().quantization.method == kAutoMethod && session_.ranks().is_first() && is_measured() &&
      validation_->is_notable() && suits_calibration(session_.config()))
    tries[0] = 1;
  distributed::all_reduce_numbers(*session_.ranks().host, tries, distributed::ReduceOp::max, "export");
  return tries[0] != 0;
}

void RunExport::write(std::int64_t step, std::int64_t first_step) {
  const QuantizationSection& quantization = section().quantization;
  if (section().weights == kAveragedWeights) use_averages();
  if (data_.validation && session_.config().evaluation.interval > 0 && !quantization.scheme.empty())
    validation_ = ExportValidation{.trained = trained_loss(step, first_step), .kept = {}};
  const bool chooses = quantization.method == kAutoMethod;
  const std::string uncalibrated(quantizers().front().name);
  prepare_export(session_);
  ModelFolderReport report =
      write_pass(chooses ? uncalibrated : quantization.method, chooses ? nullptr : calibration_, step);
  if (tries_calibration()) {
    std::shared_ptr<const CalibrationData> data = calibration_;
    if (data == nullptr && session_.ranks().is_first())
      data = calibration_rows(*data_.train, quantization.calibration_samples, file_names(session_.config().data.train));
    try {
      const ModelFolderReport second = write_pass(std::string(kCalibratedMethod), std::move(data), step);
      if (is_measured() && validation_->kept.method == kCalibratedMethod) report = second;
    } catch (const Error& error) {
      QUENCH_LOG_WARN("export: {} failed, the export stays that of {}: {}", kCalibratedMethod, uncalibrated,
                      error.what());
    }
  }
  for (EvaluationMetrics& evaluation : evaluations_) record_.metrics().evaluation(std::move(evaluation));
  if (!is_measured()) validation_.reset();
  if (!report.layers.empty())
    record_.log(fmt::format("export\n{}  files: {}\n", to_text(report.layers), size_text(report.file_bytes)));
  folder_ = section().folder;
}

void warn_of_export(const RunConfig& config, const RunEnd& end) {
  if (!end.export_validation || !end.export_validation->is_notable()) return;
  const std::string& method = config.export_model->quantization.method;
  const bool helps =
      method != kAutoMethod && suits_calibration(config) && !require_quantizer(method, "export.method").calibrated;
  const std::string command = better_export_command(config, end);
  QUENCH_LOG_WARN("the export loses more than {:.0f}% of perplexity: {}; {}", 100 * kNotableLossRise,
                  describe(*end.export_validation),
                  !helps            ? "more bits (export.scheme) or training for the scheme (a qat recipe) lose less"
                  : command.empty() ? "export.method=auto also tries GPTQ with the training data"
                                    : "to try GPTQ with the training data and keep the better: " + command);
}

}  // namespace quench
