#pragma once
// Distillation of a run, from its section distill.

#include <memory>
#include <string>

#include "data/tokenizer/tokenizer.h"
#include "distributed/ranks.h"
#include "train/objectives/distillation/run/distillation.h"
#include "train/session/model_setup.h"

namespace quench {

// The second model of section distill, of the student's vocabulary: a folder's, or the run's model at step 0. Throws
// as make_distillation(). Collective.
[[nodiscard]] FrozenModel make_frozen_teacher(const RunConfig& config, const nn::ModelConfig& student, Device device,
                                              const distributed::Ranks& ranks);

// The setup's model must outlive the objective, and is sharded over `ranks`. Estimates
// (device meta) load no values. Throws bad_config naming the key for a teacher that does not fit the student, and as
// load_weights(). Collective.
// `stored`: of distill.targets; members are null in an estimate.
[[nodiscard]] std::unique_ptr<Objective> make_distillation(const ModelSetup& setup, const RunConfig& config,
                                                           const distributed::Ranks& ranks, TargetsOfRun stored = {});

// Throws as require_same_tokenizer() for the teacher's folder; null: the run has no tokenizer. Logs
// teacher_template_warning().
void require_teacher_tokenizer(const RunConfig& config, const Tokenizer* tokenizer);

// Empty if the teacher's tokenizer holds no chat template, or one that renders a plain exchange to the text of
// data.chat_template over the run's tokenizer.
[[nodiscard]] std::string teacher_template_warning(const RunConfig& config, const Tokenizer& tokenizer,
                                                   const Tokenizer& own);

}  // namespace quench
