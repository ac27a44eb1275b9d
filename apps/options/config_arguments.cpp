#include "apps/options/config_arguments.h"

#include <charconv>

#include "core/memory/memory_limit.h"
#include "core/system/check.h"
#include "train/config/override.h"

namespace quench {

namespace {

constexpr std::int64_t kMaxWorldSize = 1 << 20;

std::int64_t whole_number(std::string_view flag, std::string_view what, const std::string& text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  QUENCH_CHECK_AS(ErrorCode::bad_config,
                  error == std::errc() && end == text.data() + text.size() && number >= 1 && number <= kMaxWorldSize,
                  "{} needs a number of {} from 1 to {}, got '{}'", flag, what, kMaxWorldSize, text);
  return number;
}

double rate(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  QUENCH_CHECK_AS(ErrorCode::bad_config,
                  error == std::errc() && end == text.data() + text.size() && number > 0 && number <= 1e6,
                  "--network needs the GB/s that a GPU can send to other machines, got '{}'", text);
  return number;
}

}  // namespace

bool takes_config(const Command& verb) {
  return verb.takes_other_words();
}

ConfigArguments parse_config_arguments(const std::vector<std::string>& arguments, const std::string& verb) {
  ConfigArguments result;
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    // Value of the flag, as --flag=value or the next word.
    const auto value = [&](std::string_view flag) -> std::optional<std::string> {
      if (argument == flag) return i + 1 < arguments.size() ? arguments[++i] : std::string();
      if (!argument.starts_with(flag) || argument[flag.size()] != '=') return std::nullopt;
      return argument.substr(flag.size() + 1);
    };
    if (argument == "--help" || argument == "-h") throw HelpRequest{};
    if (argument == "--json") {
      result.json = true;
    } else if (argument == "--quiet") {
      result.quiet = true;
    } else if (argument == "--max-seq-len") {
      result.max_seq_len = true;
    } else if (argument == "--max-model") {
      result.max_model = true;
    } else if (argument.starts_with("--device=")) {
      result.device = argument.substr(9);
    } else if (argument == "--device") {
      QUENCH_CHECK_AS(ErrorCode::bad_config, i + 1 < arguments.size(),
                      "--device needs a value: auto, cpu, cuda or cuda:N");
      result.device = arguments[++i];
    } else if (const auto limit = value("--memory-limit")) {
      (void)require_memory_size(*limit, "--memory-limit");
      rest.push_back("--training.memory_limit=" + *limit);
    } else if (const auto size = value("--world-size")) {
      result.world_size = whole_number("--world-size", "processes", *size);
    } else if (const auto node = value("--node-size")) {
      result.node_size = whole_number("--node-size", "GPUs", *node);
    } else if (const auto network = value("--network")) {
      result.network = rate(*network);
    } else if (auto gpu = value("--gpu")) {
      result.gpu = std::move(gpu);
    } else {
      rest.push_back(argument);
    }
  }
  SplitArguments split = split_arguments(rest);
  result.overrides = std::move(split.overrides);
  if (!split.words.empty()) result.config = split.words.front();
  // Extra words are rejected by the parser of overrides.
  for (std::size_t i = 1; i < split.words.size(); ++i) result.overrides.push_back(split.words[i]);
  QUENCH_CHECK_AS(ErrorCode::bad_config, !result.config.empty(),
                  "quench {} needs a config first: a JSON file, or a name that `quench config ls` shows", verb);
  return result;
}

void take_raw_arguments(const Command& verb, const std::string& name, std::function<void(ConfigArguments)> run) {
  verb.pass_words();
  verb.on_run([verb, name, run = std::move(run)] { run(parse_config_arguments(verb.other_words(), name)); });
}

}  // namespace quench
