// quench generate --prompts: one JSON line per prompt of a file, in order.

#include <array>
#include <cstdio>
#include <map>
#include <optional>
#include <set>

#include "apps/options/generate_options.h"
#include "apps/options/reader_options.h"
#include "apps/standard_output.h"
#include "core/system/log.h"
#include "data/files/line_reader.h"
#include "data/text/text_format.h"
#include "train/generation/answer_text.h"
#include "train/generation/batch_generator.h"

namespace quench {
namespace {

constexpr std::uint64_t kMaxPromptBytes = std::uint64_t{64} << 20;

struct Prompt {
  std::optional<std::string> text;  // raw text; else messages
  Conversation conversation;
  std::optional<std::int64_t> max_new_tokens;
  std::string origin;  // "file:line"
};

// Settings of requests to servers, which a record cannot have.
constexpr std::array kRequestKeys = {"temperature", "top_k",  "top_p",      "min_p",
                                     "seed",        "stop",   "max_tokens", "max_completion_tokens",
                                     "n",           "stream", "logprobs",   "repetition_penalty"};

void warn_of_request_keys(const std::set<std::string>& met, const std::string& file) {
  if (!met.empty())
    QUENCH_LOG_WARN("{}: {}: not used; options of the command count for all records, and \"max_new_tokens\" for one",
                    file, fmt::join(met, ", "));
}

Prompt record_prompt(const Json& record, const GenerateOptions& o) {
  QUENCH_CHECK_AS(ErrorCode::corrupt, record.is_object(), "expected an object, got {}", record.type_name());
  Prompt prompt;
  const bool messages = record.find("messages") != nullptr;
  QUENCH_CHECK_AS(ErrorCode::corrupt, messages != (record.find("prompt") != nullptr),
                  "expected one of the fields \"prompt\" and \"messages\"");
  if (messages) {
    prompt.conversation = openai_conversation(record);
    const bool has_system =
        !prompt.conversation.messages.empty() && prompt.conversation.messages.front().at("role") == Json("system");
    if (!o.system.empty() && !has_system) {
      Json::Array all = begin_conversation(o).messages;
      for (Json& message : prompt.conversation.messages) all.push_back(std::move(message));
      prompt.conversation.messages = std::move(all);
    }
  } else {
    prompt.text = typed_field(record, "prompt", "string").as_string();
  }
  if (const Json* limit = record.find("max_new_tokens"); limit != nullptr && !limit->is_null()) {
    QUENCH_CHECK_AS(ErrorCode::corrupt, limit->is_integer() && limit->as_int() >= 0,
                    "\"max_new_tokens\" is {}, expected a number from 0", limit->dump());
    prompt.max_new_tokens = limit->as_int();
  }
  return prompt;
}

// One prompt per line.
std::vector<Prompt> text_prompts(const std::string& file) {
  TextInput input(file);
  LineReader lines(input, kMaxPromptBytes);
  std::vector<Prompt> prompts;
  while (lines.next()) {
    const std::string origin = fmt::format("{}:{}", input.name(), lines.number());
    QUENCH_CHECK_AS(ErrorCode::corrupt, !lines.too_long(), "{}: the line is longer than {} bytes", origin,
                    kMaxPromptBytes);
    if (!lines.text().empty()) prompts.push_back({.text = lines.text(), .origin = origin});
  }
  return prompts;
}

std::vector<Prompt> record_prompts(const TextFormat& format, const GenerateOptions& o) {
  const auto source = format.open_records(o.prompts, {.max_record_bytes = kMaxPromptBytes});
  std::vector<Prompt> prompts;
  std::set<std::string> unused;
  Record record;
  while (source->next(record)) {
    QUENCH_CHECK_AS(ErrorCode::corrupt, record.fault.empty(), "{}: {}", record.origin, record.fault);
    for (const char* key : kRequestKeys)
      if (record.value.is_object() && record.value.find(key) != nullptr) unused.emplace(key);
    try {
      prompts.push_back(record_prompt(record.value, o));
    } catch (const Error& error) {
      QUENCH_FAIL(error.code(), "{}: {}", record.origin, error.what());
    }
    prompts.back().origin = record.origin;
  }
  warn_of_request_keys(unused, o.prompts);
  return prompts;
}

std::vector<Prompt> read_prompts(const GenerateOptions& o) {
  const TextFormat* format = text_format_of(o.prompts);
  const bool records = format != nullptr && format->open_records != nullptr;
  std::vector<Prompt> prompts = records ? record_prompts(*format, o) : text_prompts(o.prompts);
  for (Prompt& prompt : prompts) {
    if (!o.chat || !prompt.text) continue;
    prompt.conversation = begin_conversation(o);
    add_message(prompt.conversation, "user", *prompt.text);
    prompt.text.reset();
  }
  QUENCH_CHECK_AS(ErrorCode::bad_config, !prompts.empty(), "{} holds no prompts", o.prompts);
  return prompts;
}

std::vector<BatchPrompt> encode(const std::vector<Prompt>& prompts, const GenerateOptions& o,
                                const nn::ModelConfig& model, const Tokenizer& tokenizer, const ChatPrompt* chat) {
  std::vector<BatchPrompt> encoded;
  for (const Prompt& prompt : prompts) {
    try {
      BatchPrompt& result = encoded.emplace_back();
      result.tokens = prompt.text ? tokenizer.encode(*prompt.text, {}) : chat->encode(prompt.conversation);
      result.max_new_tokens = allowed_tokens(o, model, result.tokens.size(), kUsualTokens, prompt.max_new_tokens);
      QUENCH_CHECK_AS(ErrorCode::bad_config, !result.tokens.empty(),
                      "the prompt is empty and the tokenizer adds no beginning-of-sequence token");
    } catch (const Error& error) {
      QUENCH_FAIL(error.code(), "{}: {}", prompt.origin, error.what());
    }
  }
  return encoded;
}

}  // namespace

void generate_for_prompts(GenerateOptions& o) {
  const std::vector<Prompt> prompts = read_prompts(o);
  bool chats = false;
  for (const Prompt& prompt : prompts) chats = chats || !prompt.text;
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatPrompt> chat;
  std::vector<BatchPrompt> encoded;
  const Model loaded = open_generating_model(o, [&](const Model& model) {
    tokenizer = model.require_tokenizer(o.tokenizer);
    if (chats) chat.emplace(*tokenizer, o.chat_template, o.chat_date, chat_template_kwargs(o.chat_template_kwargs));
    encoded = encode(prompts, o, model.config(), *tokenizer, chat ? &*chat : nullptr);
    if (prompts.front().text) hint_at_chat(*tokenizer, encoded.front().tokens);
    return std::function<void()>();
  });
  set_stop_tokens(o, loaded, *tokenizer, chat ? &*chat : nullptr);
  print_unchanged();

  std::map<std::size_t, AnswerText> unfinished;
  const auto answer_of = [&](std::size_t index) -> AnswerText& {
    const DecodeOptions decoding{.skip_special = !prompts[index].text};
    return unfinished.try_emplace(index, *tokenizer, decoding, encoded[index].tokens, o.stop).first->second;
  };

  // Sequences finish in any order; output lines are kept in prompt order.
  std::map<std::size_t, std::string> waiting;
  std::size_t next = 0;
  generate_batch(
      loaded.model(), encoded, o.generation, o.batch_size,
      [&](std::size_t index, const GenerationResult& result) {
        const BatchPrompt& prompt = encoded[index];
        AnswerText& answer = answer_of(index);
        (void)answer.finish();
        Json tokens = Json::array();
        for (const std::int32_t token : result.tokens) tokens.push_back(token);
        Json json = Json::object();
        json.set("index", static_cast<std::int64_t>(index));
        if (prompts[index].text) json.set("prompt", *prompts[index].text);
        json.set("text", answer.text());
        json.set("tokens", std::move(tokens));
        json.set("prompt_tokens", static_cast<std::int64_t>(prompt.tokens.size()));
        json.set("stopped", result.stopped || answer.found());
        json.set("ended_by", end_reason(o, result, answer.found(), loaded.config(), prompt.tokens.size(),
                                        prompt.max_new_tokens, prompts[index].max_new_tokens.has_value()));
        unfinished.erase(index);
        waiting.emplace(index, json.dump());
        for (auto line = waiting.find(next); line != waiting.end(); line = waiting.find(++next)) {
          std::printf("%s\n", line->second.c_str());
          waiting.erase(line);
        }
        std::fflush(stdout);
      },
      [&](std::size_t index, std::int32_t token) {
        AnswerText& answer = answer_of(index);
        (void)answer.push(token);
        return !answer.found();
      });
}

}  // namespace quench
