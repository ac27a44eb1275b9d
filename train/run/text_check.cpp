#include "train/run/text_check.h"

#include <algorithm>

#include "core/system/check.h"
#include "data/sampling/data_formats.h"
#include "data/sampling/open_dataset.h"
#include "data/text/chat_prompt.h"
#include "data/text/document_reader.h"
#include "train/check/run_tokenizer.h"
#include "train/generation/generator.h"
#include "train/session/data_setup.h"
#include "train/session/run_objective.h"

namespace quench {
namespace {

bool reads_text(const RunConfig& config) {
  const DataFormat format = data_format_named(config.data.format);
  if (format.text != nullptr || format.tokens != nullptr) return format.text != nullptr;
  for (const std::vector<DataSource>* sources : {&config.data.train, &config.data.validation})
    for (const DataSource& source : *sources)
      if (std::ranges::any_of(source_files({source.path}, DataSplit::train),
                              [](const auto& file) { return text_format_of(file) != nullptr; }))
        return true;
  return false;
}

}  // namespace

EncodedPrompts encode_prompts(const RunConfig& config, const nn::ModelConfig& model, const Tokenizer* tokenizer) {
  const std::vector<std::string>& texts = config.evaluation.prompts;
  EncodedPrompts prompts;
  if (texts.empty()) return prompts;
  QUENCH_CHECK_AS(ErrorCode::bad_config, tokenizer != nullptr,
                  "evaluation.prompts: texts need a tokenizer: set data.tokenizer");
  std::optional<ChatPrompt> chat;
  if (config.evaluation.chat_prompts) {
    const Json::Object& kwargs = config.data.chat_template_kwargs;
    chat.emplace(*tokenizer, config.data.chat_template, config.data.chat_date, kwargs.empty() ? Json() : Json(kwargs));
    QUENCH_CHECK_AS(ErrorCode::bad_config, chat->has_template(),
                    "evaluation.chat_prompts: the tokenizer has no chat template; name one in data.chat_template");
    prompts.end_of_turn = chat->end_of_turn();
  }
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto& ids = prompts.ids.emplace_back(
        chat ? chat->encode({.messages = {Json::Object{{"role", "user"}, {"content", texts[i]}}}})
             : tokenizer->encode(texts[i]));
    QUENCH_CHECK_AS(ErrorCode::bad_config, !ids.empty(),
                    "evaluation.prompts[{}] is empty, and the tokenizer adds no token before a text", i);
    QUENCH_CHECK_AS(ErrorCode::bad_config, room_behind(model, ids.size()) > 0,
                    "evaluation.prompts[{}] has {} tokens, which leaves no space in the model's context of {}", i,
                    ids.size(), model.context_length());
  }
  return prompts;
}

void require_texts(const RunConfig& config, const nn::ModelConfig& model) {
  const std::shared_ptr<const Tokenizer> tokenizer = run_tokenizer(config);
  require_vocabulary(config, model, tokenizer.get());
  (void)encode_prompts(config, model, tokenizer.get());
  if (const ObjectiveRuntime& objective = objective_runtime(config); objective.check_tokenizer != nullptr)
    objective.check_tokenizer(config, tokenizer.get());
  if (!reads_text(config)) return;
  QUENCH_CHECK_AS(ErrorCode::bad_config, tokenizer != nullptr, "data.tokenizer: the data are text, which needs one");
  ReaderOptions reader = chat_options(config.data);
  resolve_chats(reader, *tokenizer);
}

}  // namespace quench
