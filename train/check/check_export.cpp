#include "core/system/missing_path.h"
#include "export/imatrix/imatrix.h"
#include "export/imatrix/importance.h"
#include "export/table/format.h"
#include "export/table/reader_table.h"
#include "nn/spec/rope_override.h"
#include "train/check/checks.h"
#include "train/config/data_files.h"
#include "train/config/presets.h"
#include "train/config/recipe_choice.h"
#include "train/model_folder/export_folder.h"

namespace quench {
namespace {

std::string key_of(std::string_view member) {
  return fmt::format("export.{}", member);
}

// True if readers of an adapter would combine it with another RoPE: they read the base folder's config.json.
bool rotates_otherwise(const ModelSection& model) {
  if (model.path.empty()) return false;
  try {
    return !nn::same_ropes(nn::parse_model_config(origin_config(model), model.path),
                           nn::parse_model_config(model_config(model), model.path));
  } catch (const Error&) {  // see the model check
    return false;
  }
}

void check_adapter_export(Checker& checker) {
  const ExportSection& section = *checker.config().export_model;
  if (!checker.config().lora)
    checker.report("export.format", "{}, but the run has no adapters (section lora)", section.format);
  if (!section.quantization.scheme.empty() && checker.usable({"export.scheme"}))
    checker.report("export.scheme", "{}, but format {} stores adapters alone, which are not quantized",
                   section.quantization.scheme, section.format);
  if (!section.sparsity.empty() && checker.usable({"export.sparsity"}))
    checker.report("export.sparsity", "applies to whole models, not to format {}", section.format);
  const ModelSection& model = checker.config().model;
  if (checker.options().files && rotates_otherwise(model))
    checker.report("export.format",
                   "{} holds no RoPE settings, and readers of the adapter take those of {}, not this run's; export the "
                   "merged model, or put the settings into that folder's config.json instead of this config",
                   section.format, model.path);
}

// Input sizes not divisible by the recipe's group size: "; 96 does not divide the 1024 inputs of some layers either".
std::string unfit_group(const RunConfig& config) {
  const std::int64_t group = config.recipe.group_size.value_or(0);
  if (group <= 0) return {};
  try {
    const nn::ModelConfig model = nn::parse_model_config(model_config(config.model), "model");
    for (const std::int64_t inputs : {model.hidden_size, model.intermediate_size, model.block(0).attention.key_dim})
      if (inputs % group != 0)
        return fmt::format("; {} does not divide the {} inputs of some layers either", group, inputs);
  } catch (const Error&) {  // see the model check
  }
  return {};
}

// QAT options that no scheme stores, with a format of quantized weights only. True if reported.
bool report_unstorable_recipe(Checker& checker, const ExportFormat& format) {
  const RunConfig& config = checker.config();
  if (!format.quantized || !config.export_model->quantization.scheme.empty() || config.recipe.name == kAutoRecipe ||
      !checker.usable({"export.scheme", "recipe.name", "recipe.group_size"}))
    return false;
  if (config.lora && !config.lora->quantize_merged) return false;  // trains high-precision adapters
  if (recipes::find_recipe(config.recipe.name).capabilities.scheme == nullptr || simulated_scheme(config) != nullptr)
    return false;
  const std::string group = config.recipe.group_size
                                ? fmt::format(" with recipe.group_size {}", *config.recipe.group_size)
                                : " with its options";
  checker.report(
      "export.scheme",
      "is missing: format {} stores codes, and no scheme stores what recipe {} trains{}; schemes have groups "
      "of 32, 64 and 128 and whole rows{}",
      format.name, config.recipe.name, group, unfit_group(config));
  return true;
}

// Rules of the method, of auto those of RTN.
std::optional<QuantizationRules> check_method(Checker& checker, const QuantizationSection& section,
                                              const QuantizationFaults& faults) {
  const RunConfig& config = checker.config();
  const bool chooses = section.method == kAutoMethod && !section.scheme.empty();
  const auto rules =
      resolve_quantization(chooses ? section_of_method(section, quantizers().front().name) : section, faults);
  if (!rules || !checker.usable({"export.method", "export.scheme"})) return rules;
  if (chooses && needs_calibration(*rules))
    checker.report("export.method", "{} compares {} with {}, and scheme {} needs calibration under both: name one",
                   kAutoMethod, quantizers().front().name, kCalibratedMethod, section.scheme);
  if (chooses && (!config.data.has_validation() || config.evaluation.interval == 0))
    checker.report("export.method",
                   "{} needs the validation loss of the export: set data.validation (or data.validation_split) and "
                   "evaluation.interval, or name the method",
                   kAutoMethod);
  return rules;
}

void check_calibration_files(Checker& checker) {
  if (!checker.options().files || !checker.usable({"export.calibration"})) return;
  for (const std::string& file : checker.config().export_model->quantization.calibration)
    if (expand_pattern(file).empty()) {
      checker.report("export.calibration", "no file matches \"{}\"{}", file, working_directory_text(file));
      checker.suggest(nearest_path(file));
    }
}

// A matrix changes the codes that a run trains for a GGUF file.
void check_trained_codes(Checker& checker, const QuantizationRules& rules) {
  const RunConfig& config = checker.config();
  const QuantizationSection& section = config.export_model->quantization;
  const std::string_view key = section.imatrix.empty() ? "export.calibration" : "export.imatrix";
  if (!checker.usable({"recipe.name", key}) || !exports_trained_codes(config) || !uses_importance(rules) ||
      (section.imatrix.empty() && section.calibration.empty()))
    return;
  checker.report(std::string(key),
                 "gives an importance matrix, with which the file would not hold the codes that recipe {} trains; "
                 "leave it out",
                 config.recipe.name);
}

void check_matrix_file(Checker& checker) {
  const std::string& file = checker.config().export_model->quantization.imatrix;
  if (!checker.options().files || file.empty() || !checker.usable({"export.imatrix"})) return;
  try {
    (void)read_imatrix(file);
  } catch (const Error& error) {
    checker.report("export.imatrix", "{}", error.what());
  }
}

}  // namespace

void check_export(Checker& checker) {
  if (!checker.config().export_model || !checker.usable({"export.format"})) return;
  const ExportSection& section = *checker.config().export_model;
  if (section.weights == kAveragedWeights && !checker.config().training.ema_decay &&
      checker.usable({"export.weights", "training.ema_decay"}))
    checker.report("export.weights", "{}, but training.ema_decay is not set", section.weights);
  if (is_adapter_format(section.format)) return check_adapter_export(checker);
  const std::size_t before = checker.issue_count();
  const QuantizationFaults faults{.key = key_of, .report = [&](std::string_view member, const std::string& reason) {
                                    if (checker.usable({key_of(member)})) checker.report(key_of(member), "{}", reason);
                                  }};
  const std::optional<QuantizationRules> rules = check_method(checker, section.quantization, faults);
  check_calibration_files(checker);
  check_matrix_file(checker);
  if (rules) check_trained_codes(checker, *rules);
  const ExportFormat& format = require_export_format(section.format, "export.format");
  if (report_unstorable_recipe(checker, format)) return;
  if (format.sparse && section.sparsity.empty() && checker.usable({"export.sparsity"}))
    checker.report("export.sparsity", "is missing: format {} stores pruned weights", format.name);
  if (checker.usable({"export.folder"}))
    checker.judge("export.folder",
                  [&] { require_file_format({.folder = section.folder}, format.name, format.weights_file); });
  if (rules && section.dtype == "f16" && checker.usable({"export.dtype"}))
    checker.report("export.dtype", "f16 is for weights that are not quantized; use bf16 or f32 with a scheme");
  if (checker.issue_count() != before || !checker.usable({"export.scheme", "export.rules"})) return;
  const QuantizationRules* quantization = rules ? &*rules : nullptr;
  checker.judge("export.scheme", [&] { check_format_and_rules(format, quantization); });
  if (checker.issue_count() != before || !checker.usable({"export.dtype", "export.reader"})) return;
  const FolderReader* reader =
      section.reader.empty() ? nullptr : &folder_readers().require(section.reader, "export.reader");
  checker.judge(section.reader.empty() ? "export.scheme" : "export.reader",
                [&] { (void)check_readers(format, quantization, *dtype_from_string(section.dtype), {}, reader); });
}

}  // namespace quench
