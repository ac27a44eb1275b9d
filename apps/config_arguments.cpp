#include "apps/config_arguments.h"

#include <charconv>

#include "core/system/check.h"
#include "train/config/override.h"

namespace quench {

namespace {

constexpr std::int64_t kMaxWorldSize = 1 << 20;

std::int64_t world_size(const std::string& text) {
  std::int64_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  QUENCH_CHECK_AS(ErrorCode::bad_config,
                  error == std::errc() && end == text.data() + text.size() && size >= 1 && size <= kMaxWorldSize,
                  "--world-size needs a number of processes from 1 to {}, got '{}'", kMaxWorldSize, text);
  return size;
}

}  // namespace

bool takes_config(const CLI::App& verb) {
  return verb.get_prefix_command() || verb.get_allow_extras();
}

ConfigArguments parse_config_arguments(const std::vector<std::string>& arguments, const std::string& verb) {
  ConfigArguments result;
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--help" || argument == "-h") throw CLI::CallForHelp();
    if (argument == "--json") {
      result.json = true;
    } else if (argument == "--quiet") {
      result.quiet = true;
    } else if (argument.starts_with("--device=")) {
      result.device = argument.substr(9);
    } else if (argument == "--device") {
      QUENCH_CHECK_AS(ErrorCode::bad_config, i + 1 < arguments.size(),
                      "--device needs a value: auto, cpu, cuda or cuda:N");
      result.device = arguments[++i];
    } else if (argument.starts_with("--world-size=")) {
      result.world_size = world_size(argument.substr(13));
    } else if (argument == "--world-size") {
      result.world_size = world_size(i + 1 < arguments.size() ? arguments[++i] : "");
    } else {
      rest.push_back(argument);
    }
  }
  SplitArguments split = split_arguments(rest);
  result.overrides = std::move(split.overrides);
  if (!split.words.empty()) result.config = split.words.front();
  // Further words are no overrides, which the reader of overrides says.
  for (std::size_t i = 1; i < split.words.size(); ++i) result.overrides.push_back(split.words[i]);
  QUENCH_CHECK_AS(ErrorCode::bad_config, !result.config.empty(),
                  "quench {} needs a config first: a JSON file, or a name that `quench config ls` shows", verb);
  return result;
}

void take_raw_arguments(CLI::App* verb, const std::string& name, std::function<void(ConfigArguments)> run) {
  verb->prefix_command();
  verb->callback([verb, name, run = std::move(run)] { run(parse_config_arguments(verb->remaining(), name)); });
}

}  // namespace quench
