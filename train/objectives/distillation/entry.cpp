#include <array>

#include "core/system/check.h"
#include "core/system/enum_names.h"
#include "train/config/section_enum_names.h"
#include "train/model_folder/model_card.h"
#include "train/objectives/distillation/distill_section.h"
#include "train/objectives/entries.h"

namespace quench {
namespace {

constexpr std::array<ForeignKey, 1> kDistillAliases = {
    {{"lmbda", "distill.on_policy", "share of steps on the student's own answers"}}};

std::string describe(const RunConfig& config) {
  const DistillSection& distill = *distill_section(config);
  std::string text = fmt::format("distill: {} from {}", enum_name(distill.loss),
                                 distill.teacher == kBaseTeacher      ? "the base without adapters"
                                 : distill.teacher == kInitialTeacher ? "the model at step 0"
                                                                      : distill.teacher);
  if (!distill.targets.empty())
    text += fmt::format(", {} tokens a target in {}", distill.top_k, distill.targets);
  else if (distill.teacher != kBaseTeacher)
    text += fmt::format(", {} weights{}", enum_name(distill.teacher_weights), distill.offload ? " in host memory" : "");
  if (distill.temperature != 1) text += fmt::format(", temperature {}", distill.temperature);
  if (distill.loss == Divergence::jensen_shannon) text += fmt::format(", beta {}", distill.beta);
  if (distill.hidden.weight != 0)
    text += fmt::format(
        ", {} x {} of hidden states of {}", distill.hidden.weight, enum_name(distill.hidden.loss),
        distill.hidden.layers.empty() ? "all layers" : fmt::format("{} layers", distill.hidden.layers.size()));
  if (distill.on_policy > 0)
    text += fmt::format(", {:.3g} of the steps on the student's own answers of at most {} tokens", distill.on_policy,
                        distill.max_completion_length);
  if (distill.ratio != 1) text += fmt::format(", with {:.3g} of cross-entropy", 1 - distill.ratio);
  return text + "\n";
}

std::vector<ObjectiveFolder> folders(const RunConfig& config) {
  const DistillSection& distill = *distill_section(config);
  std::vector<ObjectiveFolder> named;
  if (!has_own_teacher(distill)) named.push_back({"distill.teacher", distill.teacher, distill.targets.empty()});
  if (!distill.targets.empty()) named.push_back({"distill.targets", distill.targets});
  return named;
}

std::string facts(const RunConfig& config) {
  const DistillSection& distill = *distill_section(config);
  return fmt::format("distillation from {} ({})",
                     has_own_teacher(distill) ? "the base model" : model_name(distill.teacher),
                     enum_name(distill.loss));
}

}  // namespace

ObjectiveEntry distillation_entry() {
  return {.name = "distill",
          .summary = "divergence from a teacher's distribution, live or stored, of hidden states, and on own samples",
          .section = objective_section<DistillSection>(
              "Training against a teacher's distribution (docs/guide/distillation.md). Off unless present.",
              add_distill_fields),
          .aliases = kDistillAliases,
          .derive =
              [](RunConfig& config) {
                DistillSection& distill = *distill_section(config);
                if (distill.teacher.empty()) distill.teacher = config.lora ? kBaseTeacher : kInitialTeacher;
              },
          .check = check_distill,
          .folders = folders,
          .describe = describe,
          .facts = facts,
          .method =
              [](const RunConfig& config) {
                return std::string(distill_section(config)->on_policy > 0 ? "on-policy distillation" : "distillation");
              },
          .takes_parts = true,
          .qat_method = "QAD",
          .runtime = &kDistillRuntime};
}

}  // namespace quench
