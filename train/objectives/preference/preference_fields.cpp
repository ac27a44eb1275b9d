#include "train/config/fields/field_builder.h"
#include "train/config/section_enum_names.h"
#include "train/objectives/preference/preference_section.h"

namespace quench {

void add_preference_fields(Fields& fields) {
  using enum ResumePolicy;
  add_field(fields, "preference.loss", QUENCH_OBJECTIVE_MEMBER(PreferenceSection, loss), any_value(), guarded,
            "Loss of the answers to a prompt, as TRL's trainers define it: dpo, ipo, simpo and orpo read pairs of a "
            "chosen and a rejected answer, kto single answers with a label.");
  add_field(fields, "preference.beta", QUENCH_OBJECTIVE_MEMBER(PreferenceSection, beta), above(0), guarded,
            "Scale of the log-probability ratios; of orpo, weight of the odds ratio's term.");
  add_field(fields, "preference.label_smoothing", QUENCH_OBJECTIVE_MEMBER(PreferenceSection, label_smoothing),
            from_below(0, 0.5), guarded,
            "Probability that chosen and rejected are exchanged in the data (dpo: conservative DPO; simpo).");
  add_field(fields, "preference.length_normalization", QUENCH_OBJECTIVE_MEMBER(PreferenceSection, length_normalization),
            any_value(), guarded,
            "Mean log-probability of an answer's tokens in dpo, in place of the sum; ipo, simpo and orpo always use "
            "the mean, kto the sum.");
  add_field(fields, "preference.simpo_margin", QUENCH_OBJECTIVE_MEMBER(PreferenceSection, simpo_margin), at_least(0),
            guarded, "Margin of simpo between the rewards of both answers (gamma; TRL: simpo_gamma).");
  add_field(fields, "preference.desirable_weight", QUENCH_OBJECTIVE_MEMBER(PreferenceSection, desirable_weight),
            above(0), guarded, "Weight of desirable answers in kto.");
  add_field(fields, "preference.undesirable_weight", QUENCH_OBJECTIVE_MEMBER(PreferenceSection, undesirable_weight),
            above(0), guarded, "Weight of undesirable answers in kto.");
  add_field(fields, "preference.reference", QUENCH_OBJECTIVE_MEMBER(PreferenceSection, reference), path_value(),
            guarded,
            "Reference model of dpo, ipo and kto: base, the model without its adapters, computed in every step; "
            "initial, the model as it is before the first step, or a model folder, both computed once before the "
            "first step and stored in data.cache; auto: base with adapters, else initial.");
  add_field(fields, "preference.offload", QUENCH_OBJECTIVE_MEMBER(PreferenceSection, offload), any_value(), free,
            "Weights of the model folder in preference.reference are in pinned host memory and copied to the GPU one "
            "decoder layer ahead of their use: two layers at a time are on the GPU.");
}

}  // namespace quench
