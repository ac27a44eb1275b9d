#include <array>

#include "core/system/check.h"
#include "train/config/fields/field_builder.h"
#include "train/objectives/entries.h"
#include "train/objectives/preference/preference_section.h"

namespace quench {
namespace {

constexpr std::array<ObjectiveMetric, 4> kMetrics = {
    {{"rewards/accuracies", true}, {"rewards/margins", true}, {"rewards/chosen", true}, {"logps/chosen", true}}};

constexpr std::array<ForeignKey, 7> kAliases = {
    {{"rl", "preference.loss", ""},
     {"dpo_beta", "preference.beta", ""},
     {"rl_beta", "preference.beta", ""},
     {"simpo_gamma", "preference.simpo_margin", ""},
     {"loss_type", "preference.loss", "DPOTrainer's sigmoid is dpo"},
     {"ref_model", "preference.reference", "base, initial or a model folder"},
     {"precompute_ref_log_probs", "preference.reference", "\"initial\""}}};

std::string describe(const RunConfig& config) {
  const PreferenceSection& section = *preference_section(config);
  std::string text = fmt::format("preference: {}, beta {}", enum_name(section.loss), section.beta);
  if (section.label_smoothing != 0) text += fmt::format(", label smoothing {}", section.label_smoothing);
  if (needs_reference(section.loss)) {
    const std::string_view reference = reference_of(config);
    text += fmt::format(", against {}", reference == kBaseReference      ? "the base without adapters"
                                        : reference == kInitialReference ? "the model at step 0"
                                                                         : reference);
    if (section.offload) text += " in host memory";
  }
  return text + "\n";
}

std::vector<ObjectiveFolder> folders(const RunConfig& config) {
  const PreferenceSection& section = *preference_section(config);
  if (!names_folder(section)) return {};
  return {{"preference.reference", section.reference, needs_reference(section.loss)}};
}

std::string method(const RunConfig& config) {
  std::string loss(enum_name(preference_section(config)->loss));
  for (char& c : loss) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return loss;
}

}  // namespace

std::string_view reference_of(const RunConfig& config) {
  const std::string& reference = preference_section(config)->reference;
  if (reference != kAutoReference) return reference;
  return config.lora ? kBaseReference : kInitialReference;
}

bool names_folder(const PreferenceSection& section) {
  return section.reference != kAutoReference && section.reference != kBaseReference &&
         section.reference != kInitialReference;
}

ObjectiveEntry preference_entry() {
  return {.name = "preference",
          .summary = "log-probabilities of chosen and rejected answers: DPO, IPO, SimPO, ORPO, KTO",
          .section = objective_section<PreferenceSection>(
              "Training on preferences: DPO, IPO, SimPO, ORPO, KTO (docs/guide/preferences.md). Off unless present.",
              add_preference_fields),
          .aliases = kAliases,
          .check = check_preference,
          .records =
              [](const RunConfig& config) {
                return preference_section(config)->loss == AnswerLoss::kto ? AnswerRecords::labels
                                                                           : AnswerRecords::pairs;
              },
          .metrics = kMetrics,
          .is_likelihood = false,
          .folders = folders,
          .describe = describe,
          .facts =
              [](const RunConfig& config) {
                return fmt::format("preference training ({})", enum_name(preference_section(config)->loss));
              },
          .method = method,
          .takes_parts = true,
          .runtime = &kPreferenceRuntime};
}

}  // namespace quench
