#pragma once
// Config section preference.

#include <string>
#include <string_view>
#include <vector>

#include "core/ops/loss/answer_loss_names.h"
#include "train/config/run_config.h"

namespace quench {

class Checker;
struct Field;

struct PreferenceSection {
  AnswerLoss loss = AnswerLoss::dpo;
  double beta = 0.1;
  double label_smoothing = 0;
  bool length_normalization = false;
  double simpo_margin = 0.5;
  double desirable_weight = 1;
  double undesirable_weight = 1;
  std::string reference = "auto";  // or kBaseReference, kInitialReference, or a model folder
  bool offload = false;            // weights of the folder's model in host memory

  friend bool operator==(const PreferenceSection&, const PreferenceSection&) = default;
};

// Null: absent.
[[nodiscard]] inline const PreferenceSection* preference_section(const RunConfig& config) {
  return config.objectives.find<PreferenceSection>();
}
[[nodiscard]] inline PreferenceSection* preference_section(RunConfig& config) {
  return config.objectives.find<PreferenceSection>();
}

inline constexpr std::string_view kAutoReference = "auto";
inline constexpr std::string_view kBaseReference = "base";
inline constexpr std::string_view kInitialReference = "initial";

// preference.reference with auto resolved. The section must be present.
[[nodiscard]] std::string_view reference_of(const RunConfig& config);
// preference.reference is a model folder.
[[nodiscard]] bool names_folder(const PreferenceSection& section);

// Rows of the section, and its checks, for the objective's entry.
void add_preference_fields(std::vector<Field>& fields);
void check_preference(Checker& checker);

}  // namespace quench
