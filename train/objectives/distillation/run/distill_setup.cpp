#include "train/objectives/distillation/run/distill_setup.h"

#include "core/system/enum_names.h"
#include "core/system/key_error.h"
#include "core/system/log.h"
#include "data/text/chat_prompt.h"
#include "data/text/document_encoder.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "train/config/section_enum_names.h"
#include "train/model_folder/model_folder.h"
#include "train/objectives/distillation/distill_section.h"
#include "train/objectives/distillation/run/distillation.h"
#include "train/objectives/distillation/run/target_setup.h"
#include "train/session/frozen_model.h"

namespace quench {
namespace {

constexpr std::string_view kTeacherKey = "distill.teacher";

// Ending of an error about another vocabulary.
std::string hint_of_new_tokens(const RunConfig& config) {
  if (config.model.add_tokens.empty()) return {};
  return fmt::format(", which has the {} tokens of model.add_tokens too, or the teacher \"{}\"",
                     config.model.add_tokens.size(), config.lora ? kBaseTeacher : kInitialTeacher);
}

constexpr std::string_view kOwnTemplate = "auto";  // value of data.chat_template: the tokenizer's

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

// Layer pairs of distill.hidden; empty without it.
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
                                const distributed::Ranks& ranks) {
  const DistillSection& distill = *distill_section(config);
  const std::string folder = has_own_teacher(distill) ? std::string() : distill.teacher;
  const nn::ModelConfig architecture = folder.empty() ? student : read_model_config(folder);
  QUENCH_CHECK_KEY(ErrorCode::bad_config, std::string(kTeacherKey), architecture.vocab_size == student.vocab_size,
                   "{} has a vocabulary of {}, the student of {}: distillation compares distributions over one "
                   "vocabulary; name a teacher of the student's family{}",
                   distill.teacher, architecture.vocab_size, student.vocab_size, hint_of_new_tokens(config));
  return make_frozen_model(config, architecture,
                           {.folder = folder, .form = distill.teacher_weights, .offload = distill.offload}, device,
                           ranks);
}

std::unique_ptr<Objective> make_distillation(const ModelSetup& setup, const RunConfig& config,
                                             const distributed::Ranks& ranks, TargetsOfRun stored) {
  const DistillSection& distill = *distill_section(config);
  DistillationOptions options{.divergence = distill.loss,
                              .temperature = static_cast<float>(distill.temperature),
                              .beta = static_cast<float>(distill.beta),
                              .ratio = static_cast<float>(distill.ratio)};
  if (!distill.targets.empty())
    return std::make_unique<DistillationObjective>(
        *setup.model, stored_targets(std::move(stored), kept_tokens(distill, setup.config.vocab_size)), options);
  options.hidden = {
      .layers = compared_layers(distill, setup.config,
                                has_own_teacher(distill) ? setup.config : read_model_config(distill.teacher)),
      .distance = distill.hidden.loss,
      .weight = static_cast<float>(distill.hidden.weight)};
  std::unique_ptr<Teacher> teacher =
      distill.teacher == kBaseTeacher
          ? base_teacher(*setup.model)
          : frozen_teacher(make_frozen_teacher(config, setup.config, setup.model->options().device, ranks));
  return std::make_unique<DistillationObjective>(*setup.model, live_targets(std::move(teacher)), options);
}

void require_teacher_tokenizer(const RunConfig& config, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr || has_own_teacher(*distill_section(config))) return;
  const std::string& folder = distill_section(config)->teacher;
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
      kTeacherKey, distill_section(config)->teacher, own.chat_template()->source, name, Json(of_run).dump(),
      Json(of_teacher).dump());
}

}  // namespace quench
