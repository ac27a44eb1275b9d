// quench.Model.generate.

#include <optional>

#include "core/system/check.h"
#include "data/text/chat_prompt.h"
#include "python/src/arrays.h"
#include "python/src/model_handle.h"
#include "train/generation/answer_text.h"
#include "train/generation/batch_generator.h"
#include "train/generation/grammar_vocabulary.h"
#include "train/generation/warm_up.h"

namespace quench::python {
namespace {

struct Request {
  std::optional<std::int64_t> max_new_tokens;
  GenerationOptions options;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::int64_t batch_size = 8;
  nb::object on_text;
};

// One prompt as token ids, and whether its answer's special tokens are shown.
struct Prompt {
  std::vector<std::int32_t> ids;
  bool chat = false;
};

bool is_chat(nb::handle prompt) {
  return PyDict_Check(prompt.ptr()) ||
         (PyList_Check(prompt.ptr()) && nb::len(prompt) > 0 && PyDict_Check(nb::object(prompt[0]).ptr()));
}

// A list of prompts: its items are texts, conversations or lists of token ids.
bool is_many(nb::handle prompt) {
  if (!PyList_Check(prompt.ptr()) && !PyTuple_Check(prompt.ptr())) return false;
  if (nb::len(prompt) == 0) return true;
  const nb::object first = prompt[0];
  return !PyLong_Check(first.ptr()) && !PyDict_Check(first.ptr());
}

// Conversations by the tokenizer's template; made once, as it reads the template.
class PromptEncoder {
 public:
  explicit PromptEncoder(const ModelHandle& model) : model_(model) {}

  Prompt encode(nb::handle prompt) {
    if (PyUnicode_Check(prompt.ptr()))
      return {.ids = model_.require_tokenizer("a prompt of text").encode(nb::cast<std::string>(prompt), {})};
    if (!is_chat(prompt)) return {.ids = token_list(prompt, model_.model->config().vocab_size, "prompt")};
    Json record = to_json(prompt, "prompt");
    if (record.is_array()) record = Json(Json::Object{{"messages", std::move(record)}});
    if (!chat_) chat_.emplace(model_.require_tokenizer("a conversation"), "auto", "");
    return {.ids = chat_->encode(openai_conversation(record)), .chat = true};
  }
  [[nodiscard]] std::optional<std::int32_t> end_of_turn() const { return chat_ ? chat_->end_of_turn() : std::nullopt; }

 private:
  const ModelHandle& model_;
  std::optional<ChatPrompt> chat_;
};

std::int64_t allowed(const Request& request, const nn::ModelConfig& model, std::size_t prompt_tokens) {
  constexpr std::int64_t kUsual = 128;
  const std::int64_t room = room_behind(model, prompt_tokens);
  QUENCH_CHECK(room > 0, "prompt: {} tokens leave no space in the model's context of {}", prompt_tokens,
               model.context_length());
  QUENCH_CHECK(request.max_new_tokens.value_or(1) >= 0 && request.max_new_tokens.value_or(0) <= room,
               "max_new_tokens: {}, and after the prompt of {} tokens the model's context of {} has room for {}",
               request.max_new_tokens.value_or(0), prompt_tokens, model.context_length(), room);
  return request.max_new_tokens.value_or(std::min(kUsual, room));
}

nb::dict result_of(const Prompt& prompt, const GenerationResult& result, const std::optional<AnswerText>& answer) {
  nb::dict dict;
  dict["text"] = answer ? nb::cast(answer->text()) : nb::none();
  dict["tokens"] = nb::cast(result.tokens);
  dict["prompt_tokens"] = prompt.ids.size();
  dict["ended_by"] = answer && answer->found() ? "stop text" : result.stopped ? "stop token" : "length";
  return dict;
}

// Text of the answer token by token, with the caller's function and Python's signals between tokens.
class Listener {
 public:
  Listener(const ModelHandle& model, const Request& request, std::vector<Prompt>& prompts)
      : on_text_(request.on_text.is_none() ? nullptr : &request.on_text) {
    answers_.resize(prompts.size());
    if (!model.tokenizer) return;
    for (std::size_t i = 0; i < prompts.size(); ++i)
      answers_[i].emplace(*model.tokenizer, DecodeOptions{.skip_special = prompts[i].chat}, prompts[i].ids,
                          request.stop);
  }

  // False ends the answer.
  bool operator()(std::size_t prompt, std::int32_t token) {
    check_python_signals();
    if (!answers_[prompt]) return true;
    return tell(prompt, answers_[prompt]->push(token)) && !answers_[prompt]->found();
  }
  void finish(std::size_t prompt) {
    if (answers_[prompt]) tell(prompt, answers_[prompt]->finish());
  }
  [[nodiscard]] const std::optional<AnswerText>& answer(std::size_t prompt) const { return answers_[prompt]; }

 private:
  bool tell(std::size_t prompt, const std::string& piece) {
    if (on_text_ == nullptr || piece.empty()) return true;
    const nb::gil_scoped_acquire acquire;
    const nb::object answer = answers_.size() == 1 ? (*on_text_)(piece) : (*on_text_)(prompt, piece);
    return answer.is_none() || nb::cast<bool>(answer);
  }

  const nb::object* on_text_;
  std::vector<std::optional<AnswerText>> answers_;
};

nb::object generate_one(const ModelHandle& self, const Request& request, std::vector<Prompt> prompts) {
  GenerationOptions options = request.options;
  options.max_new_tokens = allowed(request, self.model->config(), prompts[0].ids.size());
  Listener listener(self, request, prompts);
  const GenerationResult result = self.run([&] {
    GenerationResult done =
        generate(*self.model, prompts[0].ids, options, [&](std::int32_t token) { return listener(0, token); });
    listener.finish(0);
    return done;
  });
  return result_of(prompts[0], result, listener.answer(0));
}

nb::object generate_many(const ModelHandle& self, const Request& request, std::vector<Prompt> prompts) {
  std::vector<BatchPrompt> batch;
  for (const Prompt& prompt : prompts)
    batch.push_back({prompt.ids, allowed(request, self.model->config(), prompt.ids.size())});
  Listener listener(self, request, prompts);
  std::vector<GenerationResult> results(prompts.size());
  self.run([&] {
    generate_batch(
        *self.model, batch, request.options, request.batch_size,
        [&](std::size_t i, const GenerationResult& result) {
          listener.finish(i);
          results[i] = result;
        },
        [&](std::size_t i, std::int32_t token) { return listener(i, token); });
  });
  nb::list list;
  for (std::size_t i = 0; i < prompts.size(); ++i) list.append(result_of(prompts[i], results[i], listener.answer(i)));
  return list;
}

// Grammar of the answers; null without a schema and an expression.
std::shared_ptr<const Grammar> grammar_of(const ModelHandle& self, nb::handle json_schema,
                                          const std::optional<std::string>& regex,
                                          std::vector<std::int64_t> stop_tokens) {
  if (json_schema.is_none() && !regex) return nullptr;
  QUENCH_CHECK(json_schema.is_none() || !regex, "json_schema and regex: give one of them");
  const GrammarSource source =
      regex ? GrammarSource{.kind = GrammarKind::regex, .text = *regex}
            : GrammarSource{.kind = GrammarKind::json_schema, .text = to_json(json_schema, "json_schema").dump()};
  const Tokenizer& tokenizer = self.require_tokenizer(regex ? "regex" : "json_schema");
  return without_gil([&] {
    return GrammarCompiler(grammar_vocabulary(tokenizer, self.model->config().vocab_size, std::move(stop_tokens)))
        .compile(source);
  });
}

nb::object generate_text(const ModelHandle& self, nb::handle prompt, std::optional<std::int64_t> max_new_tokens,
                         double temperature, std::int64_t top_k, double top_p, double min_p, double repetition_penalty,
                         std::uint64_t seed, std::vector<std::string> stop, bool ignore_eos, std::int64_t batch_size,
                         nb::object on_text, nb::object json_schema, const std::optional<std::string>& regex) {
  Request request{.max_new_tokens = max_new_tokens,
                  .stop = std::move(stop),
                  .ignore_eos = ignore_eos,
                  .batch_size = batch_size,
                  .on_text = std::move(on_text)};
  request.options.sampling = {.temperature = temperature,
                              .top_k = top_k,
                              .top_p = top_p,
                              .min_p = min_p,
                              .repetition_penalty = repetition_penalty,
                              .seed = seed};
  check_sampling_options(request.options.sampling);
  QUENCH_CHECK(batch_size > 0, "batch_size: {}, expected at least 1", batch_size);
  for (const std::string& text : request.stop) QUENCH_CHECK(!text.empty(), "stop: an empty text ends every answer");
  if (!request.stop.empty()) (void)self.require_tokenizer("stop");
  PromptEncoder encoder(self);
  std::vector<Prompt> prompts;
  const bool many = is_many(prompt);
  if (many)
    for (const nb::handle item : prompt) prompts.push_back(encoder.encode(item));
  else
    prompts.push_back(encoder.encode(prompt));
  std::vector<std::int64_t> ends = self.stop_tokens;
  if (const auto end = encoder.end_of_turn()) ends.push_back(*end);
  if (!ignore_eos) request.options.stop_tokens = ends;
  request.options.grammar = grammar_of(self, json_schema, regex, std::move(ends));
  if (prompts.empty()) return nb::list();
  return many ? generate_many(self, request, std::move(prompts)) : generate_one(self, request, std::move(prompts));
}

}  // namespace

void bind_generation(nb::class_<ModelHandle>& type) {
  type.def(
      "generate", generate_text, nb::arg("prompt"), nb::arg("max_new_tokens") = nb::none(), nb::kw_only(),
      nb::arg("temperature") = 0.0, nb::arg("top_k") = 0, nb::arg("top_p") = 1.0, nb::arg("min_p") = 0.0,
      nb::arg("repetition_penalty") = 1.0, nb::arg("seed") = 0, nb::arg("stop") = std::vector<std::string>(),
      nb::arg("ignore_eos") = false, nb::arg("batch_size") = 8, nb::arg("on_text") = nb::none(),
      nb::arg("json_schema") = nb::none(), nb::arg("regex") = nb::none(),
      "Continues a prompt, or answers a conversation.\n\n"
      "Args:\n"
      "  prompt: text; a conversation ``[{\"role\": \"user\", \"content\": \"...\"}]``, put into the chat "
      "template; token\n"
      "    ids; or a list of these, which are generated in one batch.\n"
      "  max_new_tokens: default 128, or to the end of the model's context.\n"
      "  temperature: 0 is greedy. top_k, top_p, min_p, repetition_penalty, seed: as in Transformers.\n"
      "  stop: texts that end an answer; they are not part of it.\n"
      "  ignore_eos: the model's end-of-sequence tokens do not end an answer.\n"
      "  batch_size: most prompts of a list at a time.\n"
      "  on_text: called with each piece of text, of a list with the prompt's index before it; False ends the "
      "answer.\n"
      "  json_schema: dict, a JSON schema that answers keep to unless max_new_tokens cuts them off; {} for any JSON. "
      "regex:\n"
      "    an expression that they match as a whole.\n\n"
      "Returns: dict, or a list of them: \"text\" (None without a tokenizer), \"tokens\", \"prompt_tokens\", "
      "\"ended_by\"\n"
      "(\"stop token\", \"stop text\" or \"length\").");
}

}  // namespace quench::python
