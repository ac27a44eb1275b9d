#include "train/setup/objective_setup.h"

#include "core/system/enum_names.h"
#include "core/system/key_error.h"
#include "data/text/document_encoder.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "train/config/section_enum_names.h"
#include "train/model_folder/model_folder.h"
#include "train/objective/distillation.h"
#include "train/setup/frozen_model.h"
#include "train/setup/target_setup.h"

namespace quench {
namespace {

constexpr std::string_view kTeacherKey = "distill.teacher";

bool has_folder(const DistillSection& distill) {
  return distill.teacher != kBaseTeacher && distill.teacher != kInitialTeacher;
}

// Ending of an error about another vocabulary.
std::string hint_of_new_tokens(const RunConfig& config) {
  if (config.model.add_tokens.empty()) return {};
  return fmt::format(", which has the {} tokens of model.add_tokens too, or the teacher \"{}\"",
                     config.model.add_tokens.size(), config.lora ? kBaseTeacher : kInitialTeacher);
}

}  // namespace

FrozenModel make_frozen_teacher(const RunConfig& config, const nn::ModelConfig& student, Device device,
                                const distributed::Ranks* ranks) {
  const DistillSection& distill = *config.distill;
  const std::string folder = has_folder(distill) ? distill.teacher : std::string();
  const nn::ModelConfig architecture = folder.empty() ? student : read_model_config(folder);
  QUENCH_CHECK_KEY(ErrorCode::bad_config, std::string(kTeacherKey), architecture.vocab_size == student.vocab_size,
                   "{} has a vocabulary of {}, the student of {}: distillation compares distributions over one "
                   "vocabulary; name a teacher of the student's family{}",
                   distill.teacher, architecture.vocab_size, student.vocab_size, hint_of_new_tokens(config));
  return make_frozen_model(config, architecture, {.folder = folder, .form = distill.teacher_weights}, device, ranks);
}

std::unique_ptr<Objective> make_objective(const ModelSetup& setup, const RunConfig& config,
                                          const distributed::Ranks* ranks, TargetsOfRun stored) {
  if (!config.distill) return nullptr;
  const DistillSection& distill = *config.distill;
  const DistillationOptions options{.divergence = distill.loss,
                                    .temperature = static_cast<float>(distill.temperature),
                                    .beta = static_cast<float>(distill.beta),
                                    .ratio = static_cast<float>(distill.ratio)};
  if (!distill.targets.empty())
    return std::make_unique<StoredDistillationObjective>(*setup.model, std::move(stored),
                                                         kept_tokens(distill, setup.config.vocab_size), options);
  std::unique_ptr<Teacher> teacher =
      distill.teacher == kBaseTeacher
          ? base_teacher(*setup.model)
          : frozen_teacher(make_frozen_teacher(config, setup.config, setup.model->options().device, ranks));
  return std::make_unique<DistillationObjective>(*setup.model, std::move(teacher), options);
}

void require_teacher_tokenizer(const RunConfig& config, const Tokenizer* tokenizer) {
  if (!config.distill || tokenizer == nullptr || !has_folder(*config.distill)) return;
  const std::string& folder = config.distill->teacher;
  if (!holds_tokenizer(folder)) return;
  const std::shared_ptr<const Tokenizer> own = load_tokenizer(folder);
  QUENCH_CHECK_KEY(ErrorCode::bad_config, std::string(kTeacherKey), own->fingerprint() == tokenizer->fingerprint(),
                   "{} holds a tokenizer of fingerprint {}, the run's data are tokenized with one of fingerprint {}: a "
                   "token must mean the same to both; name a teacher with the student's tokenizer{}",
                   folder, fingerprint_text(*own), fingerprint_text(*tokenizer), hint_of_new_tokens(config));
}

std::string describe_objective(const RunConfig& config) {
  if (!config.distill) return {};
  const DistillSection& distill = *config.distill;
  std::string text = fmt::format("distill: {} from {}", enum_name(distill.loss),
                                 distill.teacher == kBaseTeacher      ? "the base without adapters"
                                 : distill.teacher == kInitialTeacher ? "the model at step 0"
                                                                      : distill.teacher);
  if (!distill.targets.empty())
    text += fmt::format(", {} tokens a target in {}", distill.top_k, distill.targets);
  else if (distill.teacher != kBaseTeacher)
    text += fmt::format(", {} weights", enum_name(distill.teacher_weights));
  if (distill.temperature != 1) text += fmt::format(", temperature {}", distill.temperature);
  if (distill.loss == Divergence::jensen_shannon) text += fmt::format(", beta {}", distill.beta);
  if (distill.ratio != 1) text += fmt::format(", with {:.3g} of cross-entropy", 1 - distill.ratio);
  return text + "\n";
}

}  // namespace quench
