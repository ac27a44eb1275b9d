// quench best-of: the best of a model's sampled answers by the rewards of a run config, as records for fine-tuning.

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "apps/common.h"
#include "apps/options/config_arguments.h"
#include "apps/verbs.h"
#include "core/device/determinism.h"
#include "core/memory/memory_limit.h"
#include "core/system/file.h"
#include "core/system/key_error.h"
#include "core/system/log.h"
#include "core/system/threads.h"
#include "core/system/utf8.h"
#include "data/text/chat_prompt.h"
#include "data/text/data_files.h"
#include "data/text/record_columns.h"
#include "data/text/text_format.h"
#include "train/check/check.h"
#include "train/check/load.h"
#include "train/doctor/kernel_check.h"
#include "train/model/model.h"
#include "train/objectives/grpo/run/best_of.h"
#include "train/session/data_setup.h"
#include "train/session/parallel_setup.h"

namespace quench {
namespace {

// Prompts of the config's data, in their order.
class PromptFiles {
 public:
  PromptFiles(const RunConfig& config, const Tokenizer& tokenizer)
      : tokenizer_(tokenizer),
        chat_(tokenizer, config.data.chat_template, config.data.chat_date,
              config.data.chat_template_kwargs.empty() ? Json() : Json(config.data.chat_template_kwargs)) {
    std::vector<std::string> patterns;
    for (const DataSource& source : config.data.train) patterns.push_back(source.path);
    QUENCH_CHECK_KEY(ErrorCode::bad_config, "data.train", !patterns.empty(), "names no file");
    files_ = expand_data_files(patterns);
    names_ = config.data.columns;
    skips_bad_ = config.data.on_bad_record == BadRecord::skip;
  }

  // At most `count`; none at the end.
  std::vector<BestOfPrompt> next(std::size_t count) {
    std::vector<BestOfPrompt> prompts;
    while (prompts.size() < count) {
      if (source_ == nullptr) {
        if (file_ == files_.size()) break;
        source_ = open_records(files_[file_], {});
        columns_.emplace(names_, "text", std::vector<std::string>{}, files_[file_].string());
        ++file_;
      }
      Record record;
      if (!source_->next(record)) {
        columns_->require_seen();
        source_.reset();
        continue;
      }
      try {
        QUENCH_CHECK_AS(ErrorCode::corrupt, record.fault.empty(), "{}", record.fault);
        columns_->apply(record.value);
        if (is_left_out(record.value)) continue;
        prompts.push_back(prompt_of(record.value));
      } catch (const Error& error) {
        if (!skips_bad_ || error.code() != ErrorCode::corrupt)
          QUENCH_FAIL(error.code(), "{}: {}", record.origin, error.what());
        QUENCH_LOG_WARN("{}: {}; skipped", record.origin, error.what());
      }
    }
    return prompts;
  }
  [[nodiscard]] std::optional<std::int32_t> end_of_turn() const { return chat_.end_of_turn(); }

 private:
  // Members of a chat that its template reads, which the answered record keeps.
  static constexpr std::array<std::string_view, 3> kOfTemplates = {"tools", "documents", "chat_template_kwargs"};

  [[nodiscard]] static bool is_left_out(const Json& record) {
    const Json* train = record.is_object() ? record.find("train") : nullptr;
    return train != nullptr && train->is_bool() && !train->as_bool();
  }

  [[nodiscard]] BestOfPrompt prompt_of(const Json& record) const {
    QUENCH_CHECK_AS(ErrorCode::corrupt, record.is_object(), "expected an object, got {}", record.type_name());
    BestOfPrompt prompt;
    const Json* text = record.find("prompt");
    if (text != nullptr && text->is_null()) text = nullptr;
    if (text != nullptr && text->is_string()) {
      prompt.answered.set("prompt", *text);
      prompt.rollout.tokens = tokenizer_.encode(text->as_string(), {});
    } else {
      Json chat = record;
      chat.erase("prompt");
      if (text != nullptr) chat.set("messages", *text);
      const Conversation conversation =
          chat.find("messages") == nullptr ? sharegpt_conversation(chat) : openai_conversation(chat);
      QUENCH_CHECK_AS(ErrorCode::corrupt,
                      !conversation.messages.empty() && conversation.messages.back().at("role") != Json("assistant"),
                      "a prompt has messages, and ends before the answer that is sampled");
      prompt.answered.set("messages", conversation.messages);
      for (const std::string_view name : kOfTemplates)
        if (const Json* value = record.find(name); value != nullptr) prompt.answered.set(std::string(name), *value);
      prompt.rollout.tokens = chat_.encode(conversation);
    }
    prompt.rollout.text = replace_invalid_utf8(tokenizer_.decode(prompt.rollout.tokens));
    prompt.rollout.record = Json::object();
    for (const auto& [name, value] : record.as_object())
      if (name != "prompt" && name != "messages" && name != "conversations") prompt.rollout.record.set(name, value);
    return prompt;
  }

  const Tokenizer& tokenizer_;
  ChatPrompt chat_;
  std::vector<std::filesystem::path> files_;
  ColumnNames names_;
  bool skips_bad_ = false;
  std::size_t file_ = 0;
  std::optional<RecordColumns> columns_;  // file that is read
  std::unique_ptr<RecordSource> source_;
};

BestOfCounts write_answers(const ConfigArguments& arguments, RunConfig& config) {
  const distributed::Environment place = distributed::read_environment();
  QUENCH_CHECK_AS(ErrorCode::unsupported, place.world_size == 1,
                  "best-of runs in one process; start it without a launcher");
  const Device device = device_of_rank(arguments.device, place);
  set_ranks(config, 1);
  share_threads(config, place);
  require_on_device(config, device);
  limit_memory(device, config.training.memory_limit, "training.memory_limit");
  set_thread_count(static_cast<int>(config.training.threads));
  check_kernels(device);
  const std::string& named = grpo_section(config)->best_of.model;
  const Model loaded = Model::open(
      named.empty() ? config.model.path : named,
      {.device = arguments.device, .dtype = std::string(to_string(config.training.dtype)), .mtp = MtpLayers::left_out});
  const std::unique_ptr<Tokenizer> tokenizer = loaded.require_tokenizer();
  PromptFiles files(config, *tokenizer);
  std::vector<std::int64_t> stop = loaded.token_ids(tokenizer.get()).generation.eos;
  if (const auto end = files.end_of_turn()) stop.push_back(*end);
  BestOf best(config, loaded.model(), *tokenizer, std::move(stop));
  std::string lines;
  while (true) {
    std::vector<BestOfPrompt> prompts = files.next(static_cast<std::size_t>(global_batch_size(config)));
    if (prompts.empty()) break;
    lines += best.answer(std::move(prompts));
    if (!arguments.quiet && !arguments.json)
      QUENCH_LOG_INFO("{} prompts, {} answers accepted", best.counts().prompts, best.counts().accepted);
  }
  write_file_atomically(grpo_section(config)->best_of.file, lines);
  return best.counts();
}

void run_best_of(const ConfigArguments& arguments) {
  QUENCH_CHECK_AS(
      ErrorCode::bad_config, !arguments.plans(),
      "--world-size, --node-size, --network, --gpu, --max-seq-len and --max-model are for `quench estimate`");
  RunConfig config = load_run_config(arguments.config, arguments.overrides);
  QUENCH_CHECK_KEY(ErrorCode::bad_config, "grpo.best_of.file",
                   grpo_section(config) != nullptr && !grpo_section(config)->best_of.file.empty(),
                   "unset: name the file to write, as --grpo.best_of.file=answers.jsonl");
  QUENCH_CHECK_KEY(ErrorCode::bad_config, "grpo.best_of.model",
                   !grpo_section(config)->best_of.model.empty() || !config.model.path.empty(),
                   "unset, and so is model.path: name the model that answers");
  set_log_level(config.metrics.log_level);
  if (arguments.quiet) quieten_log();
  BestOfCounts counts;
  with_origins(arguments.config, arguments.overrides, [&] { counts = write_answers(arguments, config); });
  const std::string& file = grpo_section(config)->best_of.file;
  const double mean = counts.accepted > 0 ? counts.reward / static_cast<double>(counts.accepted) : 0;
  if (arguments.json)
    print_json(Json::Object{{"file", file},
                            {"prompts", counts.prompts},
                            {"accepted", counts.accepted},
                            {"without_reward", counts.without_reward},
                            {"mean_reward", mean}});
  else if (!arguments.quiet)
    std::printf("%s: %lld answers to %lld prompts, mean reward %.4g; %lld prompts without a reward\n", file.c_str(),
                static_cast<long long>(counts.accepted), static_cast<long long>(counts.prompts), mean,
                static_cast<long long>(counts.without_reward));
}

}  // namespace

void add_best_of_verb(const Command& app) {
  const Command verb = app.add_command("best-of", "Write the best of a model's sampled answers for fine-tuning");
  verb.footer(
      "Usage: quench best-of CONFIG [--device D] [--memory-limit SIZE] [--json] [--quiet] [--section.key=value ...]\n"
      "Samples grpo.num_generations answers of grpo.best_of.model to each prompt of data.train, judges them by "
      "grpo.rewards,\n"
      "and writes the best one of each prompt with its reward into grpo.best_of.file, a line of JSON that `quench "
      "train`\n"
      "reads as training data (docs/guide/rewards.md).\n"
      "Example: quench best-of grpo_tiny --grpo.best_of.model=runs/rewarded --data.train=prompts.jsonl "
      "--grpo.best_of.file=best.jsonl");
  take_raw_arguments(verb, "best-of", run_best_of);
}

}  // namespace quench
