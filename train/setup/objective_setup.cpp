#include "train/setup/objective_setup.h"

#include <algorithm>

#include "core/system/enum_names.h"
#include "core/system/key_error.h"
#include "data/text/document_encoder.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "distributed/fsdp/gather_parameter.h"
#include "train/config/section_enum_names.h"
#include "train/model_folder/model_folder.h"
#include "train/objective/distillation.h"
#include "train/setup/parallel_setup.h"

namespace quench {
namespace {

using recipes::BaseForm;

constexpr std::string_view kTeacherKey = "distill.teacher";

bool has_folder(const DistillSection& distill) {
  return distill.teacher != kBaseTeacher && distill.teacher != kInitialTeacher;
}

// Of the run's own model at step 0, or of the teacher's folder.
void fill_teacher(TeacherModel& teacher, const RunConfig& config, const distributed::Ranks* ranks) {
  const DistillSection& distill = *config.distill;
  nn::CausalLm& model = *teacher.model;
  const BaseForm form = distill.teacher_weights;
  const std::string& folder = has_folder(distill) ? distill.teacher : config.model.path;
  const bool stored = form == BaseForm::stored;
  if (stored) {
    load_base(model, folder, [&](nn::Parameter& weight, const PackedMatrix& codes) {
      teacher.base->keep(weight, codes.to(model.options().device), model.options().dtype);
    });
    return;
  }
  const std::vector<nn::Parameter*> weights = recipes::quantizable_weights(model);
  const auto quantize = [&](nn::Parameter& parameter) {
    if (std::ranges::find(weights, &parameter) != weights.end()) teacher.base->store(parameter, form);
  };
  if (model.options().device.is_meta()) {
    for (nn::Parameter* parameter : model.parameters()) {
      materialize(*parameter);
      if (form != BaseForm::dense) quantize(*parameter);
    }
    return;
  }
  // Whole weights are quantized one by one.
  const bool at_once = form != BaseForm::dense && ranks == nullptr;
  const nn::ParameterFilled filled = at_once ? nn::ParameterFilled(quantize) : nn::ParameterFilled();
  if (has_folder(distill))
    load_weights(model, folder, false, filled);
  else
    fill_model(model, config, filled);
  if (at_once || form == BaseForm::dense) return;
  recipes::QuantizedBase::Gather gather;
  if (ranks != nullptr)
    gather = [ranks](const nn::Parameter& parameter) { return distributed::gather_parameter(parameter, *ranks); };
  teacher.base->store(model, form, gather);
}

TeacherModel make_teacher(const ModelSetup& setup, const RunConfig& config, const distributed::Ranks* ranks) {
  const DistillSection& distill = *config.distill;
  nn::ModelConfig architecture = has_folder(distill) ? read_model_config(distill.teacher) : setup.config;
  QUENCH_CHECK_KEY(ErrorCode::bad_config, std::string(kTeacherKey), architecture.vocab_size == setup.config.vocab_size,
                   "{} has a vocabulary of {}, the student of {}: distillation compares distributions over one "
                   "vocabulary; name a teacher of the student's family",
                   distill.teacher, architecture.vocab_size, setup.config.vocab_size);
  nn::ParameterOptions options = parameter_options(config, setup.model->options().device);
  const ModelSharding sharding = run_sharding(ranks);
  options.sharding = sharding.sharding;
  options.expert_sharding = sharding.experts;
  options.trainable = false;
  options.deferred = distill.teacher_weights != BaseForm::dense && ranks == nullptr;
  TeacherModel teacher;
  teacher.model = std::make_unique<nn::CausalLm>(architecture, options);
  teacher.base = std::make_unique<recipes::QuantizedBase>();
  fill_teacher(teacher, config, ranks);
  RunConfig sharded = config;
  sharded.parallel.reshard_after_forward = true;  // no backward pass
  sharded.parallel.float8_all_gather = false;
  teacher.sharded = share_model(*teacher.model, ranks, sharded, teacher.base.get());
  return teacher;
}

}  // namespace

std::unique_ptr<Objective> make_objective(const ModelSetup& setup, const RunConfig& config,
                                          const distributed::Ranks* ranks) {
  if (!config.distill) return nullptr;
  const DistillSection& distill = *config.distill;
  std::unique_ptr<Teacher> teacher =
      distill.teacher == kBaseTeacher ? base_teacher(*setup.model) : frozen_teacher(make_teacher(setup, config, ranks));
  return std::make_unique<DistillationObjective>(
      *setup.model, std::move(teacher),
      DistillationOptions{.divergence = distill.loss,
                          .temperature = static_cast<float>(distill.temperature),
                          .beta = static_cast<float>(distill.beta),
                          .ratio = static_cast<float>(distill.ratio)});
}

void require_teacher_tokenizer(const RunConfig& config, const Tokenizer* tokenizer) {
  if (!config.distill || tokenizer == nullptr || !has_folder(*config.distill)) return;
  const std::string& folder = config.distill->teacher;
  if (!holds_tokenizer(folder)) return;
  const std::shared_ptr<const Tokenizer> own = load_tokenizer(folder);
  QUENCH_CHECK_KEY(ErrorCode::bad_config, std::string(kTeacherKey), own->fingerprint() == tokenizer->fingerprint(),
                   "{} holds a tokenizer of fingerprint {}, the run's data are tokenized with one of fingerprint {}: a "
                   "token must mean the same to both; name a teacher with the student's tokenizer",
                   folder, fingerprint_text(*own), fingerprint_text(*tokenizer));
}

std::string describe_objective(const RunConfig& config) {
  if (!config.distill) return {};
  const DistillSection& distill = *config.distill;
  std::string text = fmt::format("distill: {} from {}", enum_name(distill.loss),
                                 distill.teacher == kBaseTeacher      ? "the base without adapters"
                                 : distill.teacher == kInitialTeacher ? "the model at step 0"
                                                                      : distill.teacher);
  if (distill.teacher != kBaseTeacher) text += fmt::format(", {} weights", enum_name(distill.teacher_weights));
  if (distill.temperature != 1) text += fmt::format(", temperature {}", distill.temperature);
  if (distill.loss == Divergence::jensen_shannon) text += fmt::format(", beta {}", distill.beta);
  if (distill.ratio != 1) text += fmt::format(", with {:.3g} of cross-entropy", 1 - distill.ratio);
  return text + "\n";
}

}  // namespace quench
