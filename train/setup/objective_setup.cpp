#include "train/setup/objective_setup.h"

#include "core/system/enum_names.h"
#include "core/system/key_error.h"
#include "core/system/log.h"
#include "data/text/chat_prompt.h"
#include "data/text/document_encoder.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "train/config/section_enum_names.h"
#include "train/model_folder/model_folder.h"
#include "train/objective/distillation.h"
#include "train/objective/mtp_objective.h"
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

constexpr std::string_view kOwnTemplate = "auto";  // of data.chat_template: the tokenizer's

// A question, an answer, and the prompt of the next answer; empty without a template, or if it does not render them.
std::string rendered_exchange(const RunConfig& config, const Tokenizer& tokenizer, const std::string& name) {
  Conversation conversation;
  for (const auto& [role, content] : {std::pair("user", "a"), {"assistant", "b"}, {"user", "c"}})
    conversation.messages.emplace_back(Json::Object{{"role", role}, {"content", content}});
  try {
    const ChatPrompt prompt(tokenizer, name, config.data.chat_date, Json(config.data.chat_template_kwargs));
    return prompt.has_template() ? tokenizer.decode(prompt.encode(conversation)) : std::string();
  } catch (const Error&) {
    return {};
  }
}

// Of distill.hidden; empty without it.
std::vector<LayerPair> compared_layers(const DistillSection& distill, const nn::ModelConfig& student,
                                       const nn::ModelConfig& teacher) {
  const DistillSection::Hidden& hidden = distill.hidden;
  if (hidden.weight == 0) return {};
  QUENCH_CHECK_KEY(ErrorCode::bad_config, std::string(kTeacherKey), teacher.hidden_size == student.hidden_size,
                   "{} has hidden states of {} elements, the student of {}: distill.hidden compares them element by "
                   "element; name a teacher of the same hidden size, or remove distill.hidden",
                   distill.teacher, teacher.hidden_size, student.hidden_size);
  const auto require_layer = [](std::string_view key, std::int64_t layer, std::string_view model, std::int64_t layers) {
    QUENCH_CHECK_KEY(ErrorCode::bad_config, std::string(key), layer < layers,
                     "layer {} does not exist: the {} has layers 0 to {}", layer, model, layers - 1);
  };
  const std::int64_t depth = student.num_hidden_layers, teacher_depth = teacher.num_hidden_layers;
  std::vector<LayerPair> pairs;
  const std::size_t count = hidden.layers.empty() ? static_cast<std::size_t>(depth) : hidden.layers.size();
  QUENCH_CHECK_KEY(ErrorCode::bad_config, "distill.hidden.teacher_layers",
                   hidden.teacher_layers.empty() || hidden.teacher_layers.size() == count,
                   "names {} layers of the teacher for {} of the student; name one for each, or none",
                   hidden.teacher_layers.size(), count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t layer = hidden.layers.empty() ? static_cast<std::int64_t>(i) : hidden.layers[i];
    require_layer("distill.hidden.layers", layer, "student", depth);
    const std::int64_t other =
        hidden.teacher_layers.empty() ? spread_layer(layer, depth, teacher_depth) : hidden.teacher_layers[i];
    require_layer("distill.hidden.teacher_layers", other, "teacher", teacher_depth);
    pairs.push_back({layer, other});
  }
  return pairs;
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
  return make_frozen_model(config, architecture,
                           {.folder = folder, .form = distill.teacher_weights, .offload = distill.offload}, device,
                           ranks);
}

std::unique_ptr<Objective> make_objective(const ModelSetup& setup, const RunConfig& config,
                                          const distributed::Ranks* ranks, TargetsOfRun stored) {
  if (!config.distill) {
    if (setup.config.mtp.layers == 0) return nullptr;
    return std::make_unique<MtpObjective>(*setup.model, config.training.mtp_loss_weight);
  }
  const DistillSection& distill = *config.distill;
  DistillationOptions options{.divergence = distill.loss,
                              .temperature = static_cast<float>(distill.temperature),
                              .beta = static_cast<float>(distill.beta),
                              .ratio = static_cast<float>(distill.ratio)};
  if (!distill.targets.empty())
    return std::make_unique<StoredDistillationObjective>(*setup.model, std::move(stored),
                                                         kept_tokens(distill, setup.config.vocab_size), options);
  options.hidden = {.layers = compared_layers(distill, setup.config,
                                              has_folder(distill) ? read_model_config(distill.teacher) : setup.config),
                    .distance = distill.hidden.loss,
                    .weight = static_cast<float>(distill.hidden.weight)};
  std::unique_ptr<Teacher> teacher =
      distill.teacher == kBaseTeacher
          ? base_teacher(*setup.model)
          : frozen_teacher(make_frozen_teacher(config, setup.config, setup.model->options().device, ranks));
  return std::make_unique<DistillationObjective>(*setup.model, std::move(teacher), options);
}

void require_teacher_tokenizer(const RunConfig& config, const Tokenizer* tokenizer) {
  if (!config.distill || tokenizer == nullptr || !has_folder(*config.distill)) return;
  const std::string& folder = config.distill->teacher;
  const std::shared_ptr<const Tokenizer> own = require_same_tokenizer(
      kTeacherKey, folder, *tokenizer, "name a teacher with the student's tokenizer" + hint_of_new_tokens(config));
  if (!own) return;
  if (const std::string warning = teacher_template_warning(config, *tokenizer, *own); !warning.empty())
    QUENCH_LOG_WARN("{}", warning);
}

std::string teacher_template_warning(const RunConfig& config, const Tokenizer& tokenizer, const Tokenizer& own) {
  if (!own.chat_template()) return {};
  const std::string& name = config.data.chat_template;
  const std::string of_run = rendered_exchange(config, tokenizer, name),
                    of_teacher = rendered_exchange(config, own, std::string(kOwnTemplate));
  if (of_run.empty() || of_teacher.empty() || of_run == of_teacher) return {};
  return fmt::format(
      "{}: the chat template of {} ({}) differs from the run's (data.chat_template {}): of conversations the teacher "
      "reads {} where it was trained on {}; let data.chat_template name the teacher's template, if the data are "
      "conversations",
      kTeacherKey, config.distill->teacher, own.chat_template()->source, name, Json(of_run).dump(),
      Json(of_teacher).dump());
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
    text += fmt::format(", {} weights{}", enum_name(distill.teacher_weights), distill.offload ? " in host memory" : "");
  if (distill.temperature != 1) text += fmt::format(", temperature {}", distill.temperature);
  if (distill.loss == Divergence::jensen_shannon) text += fmt::format(", beta {}", distill.beta);
  if (distill.hidden.weight != 0)
    text += fmt::format(
        ", {} x {} of hidden states of {}", distill.hidden.weight, enum_name(distill.hidden.loss),
        distill.hidden.layers.empty() ? "all layers" : fmt::format("{} layers", distill.hidden.layers.size()));
  if (distill.ratio != 1) text += fmt::format(", with {:.3g} of cross-entropy", 1 - distill.ratio);
  return text + "\n";
}

}  // namespace quench
