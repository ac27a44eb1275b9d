// Checks of the section export.

#include "export/format.h"
#include "train/check/checker.h"
#include "train/config/data_files.h"

namespace quench {
namespace {

std::string key_of(std::string_view member) {
  return fmt::format("export.{}", member);
}

// Reports what `work` throws.
template <class Work>
void judge(Checker& checker, const char* key, const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    checker.report(key, "{}", error.what());
  }
}

void check_adapter_export(Checker& checker) {
  const ExportSection& section = *checker.config().export_model;
  if (!checker.config().lora)
    checker.report("export.format", "{}, but the run has no adapters (section lora)", kPeftFormat);
  if (!section.quantization.scheme.empty() && checker.usable({"export.scheme"}))
    checker.report("export.scheme", "{}, but format {} stores adapters alone, which are not quantized",
                   section.quantization.scheme, kPeftFormat);
  if (!section.sparsity.empty() && checker.usable({"export.sparsity"}))
    checker.report("export.sparsity", "is for whole models, not for format {}", kPeftFormat);
}

void check_calibration_files(Checker& checker) {
  if (!checker.options().files || !checker.usable({"export.calibration"})) return;
  for (const std::string& file : checker.config().export_model->quantization.calibration)
    if (expand_pattern(file).empty()) checker.report("export.calibration", "no file matches \"{}\"", file);
}

}  // namespace

void check_export(Checker& checker) {
  if (!checker.config().export_model || !checker.usable({"export.format"})) return;
  const ExportSection& section = *checker.config().export_model;
  if (section.format == kPeftFormat) return check_adapter_export(checker);
  const std::size_t before = checker.issue_count();
  const QuantizationFaults faults{.key = key_of, .report = [&](std::string_view member, const std::string& reason) {
                                    if (checker.usable({key_of(member)})) checker.report(key_of(member), "{}", reason);
                                  }};
  const std::optional<QuantizationRules> rules = resolve_quantization(section.quantization, faults);
  check_calibration_files(checker);
  const ExportFormat& format = require_export_format(section.format, "export.format");
  if (format.sparse && section.sparsity.empty() && checker.usable({"export.sparsity"}))
    checker.report("export.sparsity", "is missing: format {} stores pruned weights", format.name);
  if (checker.issue_count() == before && checker.usable({"export.scheme", "export.rules"}))
    judge(checker, "export.scheme", [&] { check_format_and_rules(format, rules ? &*rules : nullptr); });
}

}  // namespace quench
