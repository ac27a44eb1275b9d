#include <filesystem>

#include "core/system/output_folder.h"
#include "train/check/checker.h"
#include "train/config/section_enum_names.h"
#include "train/model_source/model_source.h"
#include "train/objectives/preference/preference_section.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

bool is_within(const fs::path& path, const std::string& folder) {
  if (folder.empty()) return false;
  const fs::path inner = resolved_path(path), outer = resolved_path(folder);
  return std::ranges::mismatch(inner, outer).in2 == outer.end();
}

void check_reference(Checker& checker) {
  const RunConfig& config = checker.config();
  const std::string& reference = preference_section(config)->reference;
  const bool folder = names_folder(*preference_section(config));
  if (preference_section(config)->offload && !folder && checker.usable({"preference.offload"}))
    checker.report("preference.offload",
                   "has no effect with preference.reference {}, which is no second model; name a model folder there, "
                   "or set it to false",
                   reference);
  if (reference == kAutoReference || reference == kInitialReference) return;
  if (reference == kBaseReference) {
    if (!config.lora)
      checker.report("preference.reference",
                     "base is the trained model itself: the run has no adapters (section lora) to leave out; set it to "
                     "initial, or to a model folder");
    return;
  }
  if (is_within(reference, config.run.folder) || is_within(reference, config.checkpoint.folder)) {
    checker.report("preference.reference",
                   "{} is in the run's own folder: a reference must not be the trained model; set it to initial, or to "
                   "another model folder",
                   reference);
    return;
  }
  if (!checker.options().files) return;
  try {
    const ModelSource source = ModelSource::open(reference, "reference model");
    source.require_model();
    (void)source.config();
  } catch (const Error& error) {
    checker.report("preference.reference", "{} (or one of {}, {}, {})", error.what(), kAutoReference, kBaseReference,
                   kInitialReference);
  }
}

}  // namespace

void check_preference(Checker& checker) {
  const RunConfig& config = checker.config();
  if (!checker.usable({"preference.loss"})) return;
  const PreferenceSection& section = *preference_section(config);
  const PreferenceSection unset;
  const auto unused = [&](const char* key, bool changed, bool used) {
    if (changed && !used && checker.usable({key}))
      checker.report(key, "has no effect on preference.loss {}", enum_name(section.loss));
  };
  using enum AnswerLoss;
  const AnswerLoss loss = section.loss;
  unused("preference.label_smoothing", section.label_smoothing != unset.label_smoothing, loss == dpo || loss == simpo);
  unused("preference.length_normalization", section.length_normalization, loss == dpo);
  unused("preference.simpo_margin", section.simpo_margin != unset.simpo_margin, loss == simpo);
  unused("preference.desirable_weight", section.desirable_weight != unset.desirable_weight, loss == kto);
  unused("preference.undesirable_weight", section.undesirable_weight != unset.undesirable_weight, loss == kto);
  unused("preference.reference", section.reference != unset.reference, needs_reference(loss));
  unused("preference.offload", section.offload, needs_reference(loss));
  if (needs_reference(loss) && checker.usable({"preference.reference"})) check_reference(checker);
  if (config.data.train_on != TrainOn::assistant && checker.usable({"data.train_on"}))
    checker.report("data.train_on", "{}, but preference training compares answers: leave it at assistant",
                   enum_name(config.data.train_on));
}

}  // namespace quench
