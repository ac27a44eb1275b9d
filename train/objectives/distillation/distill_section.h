#pragma once
// Config section distill.

#include <string>
#include <vector>

#include "core/number/dtype.h"
#include "core/ops/loss/distillation_loss.h"
#include "core/ops/loss/hidden_loss.h"
#include "core/system/enum_names.h"
#include "recipes/lora/base_form.h"
#include "train/config/run_config.h"

namespace quench {

class Checker;
struct Field;

// Teachers that are no model folder.
inline constexpr std::string_view kBaseTeacher = "base";        // the frozen weights under adapters
inline constexpr std::string_view kInitialTeacher = "initial";  // a copy of the weights at step 0

struct DistillSection {
  // Loss on hidden states after decoder layers.
  struct Hidden {
    double weight = 0;                         // in the loss; 0: none
    std::vector<std::int64_t> layers;          // factor in the loss; 0: none
    std::vector<std::int64_t> teacher_layers;  // one for each; empty: at the same share of the depth
    HiddenDistance loss = HiddenDistance::mse;

    friend bool operator==(const Hidden&, const Hidden&) = default;
  };

  std::string teacher;  // derived: base with adapters, else initial; or a model folder
  Divergence loss = Divergence::forward_kl;
  double temperature = 1;
  double beta = 0.5;  // weight of the teacher in the mixture of jensen_shannon
  double ratio = 1;   // share of the divergence in the loss; the rest is cross-entropy
  recipes::BaseForm teacher_weights = recipes::BaseForm::dense;  // storage of a second model
  bool offload = false;                                          // a second model's weights in host memory
  std::string targets;               // folder of stored targets; empty: the teacher runs in every step
  std::int64_t top_k = 64;           // tokens of a stored target
  DType targets_dtype = DType::f16;  // dtype of stored log-probabilities: f16 or f32
  Hidden hidden;
  double on_policy = 0;  // share of steps on the student's own samples
  std::int64_t max_completion_length = 256;
  double sampling_temperature = 1;
  std::int64_t log_completions = 2;

  friend bool operator==(const DistillSection&, const DistillSection&) = default;
};

// No second model's folder: base or initial.
[[nodiscard]] inline bool has_own_teacher(const DistillSection& distill) {
  return distill.teacher == kBaseTeacher || distill.teacher == kInitialTeacher;
}

// Null: absent.
[[nodiscard]] inline const DistillSection* distill_section(const RunConfig& config) {
  return config.objectives.find<DistillSection>();
}
[[nodiscard]] inline DistillSection* distill_section(RunConfig& config) {
  return config.objectives.find<DistillSection>();
}

template <>
struct EnumNames<Divergence> {
  using E = Divergence;
  static constexpr EnumTable<E, 3> values = {
      {{E::forward_kl, "forward_kl"}, {E::reverse_kl, "reverse_kl"}, {E::jensen_shannon, "jensen_shannon"}}};
};

template <>
struct EnumNames<HiddenDistance> {
  using E = HiddenDistance;
  static constexpr EnumTable<E, 3> values = {
      {{E::mse, "mse"}, {E::cosine, "cosine"}, {E::normalized_mse, "normalized_mse"}}};
};

// Rows of the section, and its checks, for the objective's entry.
void add_distill_fields(std::vector<Field>& fields);
void check_distill(Checker& checker);

}  // namespace quench
