#pragma once
// Options of the verb generate, and functions shared by its modes.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/command.h"
#include "apps/common.h"
#include "data/text/chat_prompt.h"
#include "train/generation/generator.h"
#include "train/model/model.h"

namespace quench {

struct GenerateOptions {
  std::string model;
  std::string adapter;
  std::string tokenizer;
  std::string prompt;
  std::string prompt_file;
  std::string prompts;  // file with several prompts
  bool interactive = false;
  bool chat = false;
  std::string system;
  std::string chat_template = "auto";
  std::string chat_date;
  std::string chat_template_kwargs;
  std::int64_t batch_size = 8;
  std::string device = "auto";
  std::string dtype = "auto";
  std::string kv_cache{kAutoKvCache};
  std::optional<std::int64_t> max_new_tokens;
  GenerationOptions generation;
  std::vector<std::string> stop;  // texts
  std::string json_schema;        // file
  std::string regex;
  std::optional<CommandOption> schema_option, regex_option;  // whether json_schema and regex are given
  bool ignore_eos = false;
  bool json = false;
  bool deterministic = false;  // batch_invariant(); for verbs of the engine
  int threads = 0;
  std::string memory_limit;  // most GPU memory; empty: none
};

inline constexpr std::int64_t kUsualTokens = 128;

// Number of new tokens: the value of the record or else of the option, which must fit in the context; else `usual`,
// clipped to the context. Throws bad_config naming the numbers.
[[nodiscard]] std::int64_t allowed_tokens(const GenerateOptions& o, const nn::ModelConfig& model,
                                          std::size_t prompt_tokens, std::int64_t usual = kUsualTokens,
                                          std::optional<std::int64_t> of_record = {});
[[nodiscard]] std::string end_reason(const GenerateOptions& o, const GenerationResult& result, bool stop_text,
                                     const nn::ModelConfig& model, std::size_t prompt_tokens, std::int64_t limit,
                                     bool of_record = false);

// Names --chat where a prompt without it and without special tokens goes to a tokenizer with a chat template.
void hint_at_chat(const Tokenizer& tokenizer, std::span<const std::int32_t> prompt);

// The model's stop tokens, and with a chat template its end-of-turn token.
[[nodiscard]] std::vector<std::int64_t> stop_tokens(const Model& loaded, const Tokenizer& tokenizer,
                                                    const ChatPrompt* chat);
// Sets the stop tokens, unless they are to be ignored, and the grammar of --json-schema or --regex. Names settings of
// generation_config.json that are not used.
void set_stop_tokens(GenerateOptions& o, const Model& loaded, const Tokenizer& tokenizer, const ChatPrompt* chat);
// Conversation with the system message, if any.
[[nodiscard]] Conversation begin_conversation(const GenerateOptions& o);
void add_message(Conversation& conversation, std::string_view role, std::string_view content);

// --tokenizer, --device, --memory-limit, --dtype, --kv-cache, --threads.
void add_loading_options(const Command& verb, GenerateOptions& o);
// --chat-template, --chat-date, --chat-template-kwargs.
void add_chat_template_options(const Command& verb, GenerateOptions& o);

// Sampling settings of the folder's generation_config.json, numbers by key: repetition_penalty, and if it has
// do_sample: true temperature, top_k, top_p and min_p. Throws corrupt.
[[nodiscard]] Json::Object published_sampling(const Model& loaded);

// Opens the model as the options say. `prepare`: as ModelOptions::work. In one of several processes: its slice, which
// on ranks above 0 follows rank 0's passes to their end and then throws ExitRequest.
[[nodiscard]] Model open_generating_model(const GenerateOptions& o, const LoadingWork& prepare);

// Answers stdin line by line until its end.
void generate_interactively(GenerateOptions& o);
// Continues the prompts of a file; prints one JSON line each.
void generate_for_prompts(GenerateOptions& o);

}  // namespace quench
