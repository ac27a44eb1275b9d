#include "train/rollouts/rollout_setup.h"

#include "data/text/chat_prompt.h"
#include "train/record/run_model.h"

namespace quench {

std::vector<std::int64_t> rollout_stop_tokens(const RunSession& session, const DataSetup& data) {
  const DataSection& section = session.config().data;
  const RunModel model = make_run_model(session.config(), session.model_config(), data.tokenizer, data.train.get());
  std::vector<std::int64_t> tokens = model.generation_ids.eos;
  const ChatPrompt prompt(*data.tokenizer, section.chat_template, section.chat_date,
                          section.chat_template_kwargs.empty() ? Json() : Json(section.chat_template_kwargs));
  if (const auto end = prompt.end_of_turn()) tokens.push_back(*end);
  return tokens;
}

}  // namespace quench
