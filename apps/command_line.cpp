#include "apps/command_line.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/system/check.h"
#include "core/system/nearest_name.h"

namespace quench {
namespace {

// Verbs of other programs, and those here that do the same.
constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kOtherNames = {{
    {"chat", "generate --interactive"},
    {"convert", "export"},
    {"evaluate", "eval"},
    {"fine-tune", "train"},
    {"finetune", "train"},
    {"infer", "generate"},
    {"inference", "generate"},
    {"launch", "run"},
    {"perplexity", "eval"},
    {"pretrain", "train"},
    {"sft", "train"},
    {"torchrun", "run"},
    {"version", "--version"},
}};

std::string other_name(std::string_view word) {
  for (const auto& [name, verb] : kOtherNames)
    if (word == name) return std::string(verb);
  return {};
}

}  // namespace

std::vector<std::string> replace_help_word(std::vector<std::string> words) {
  if (words.empty() || words.front() != "help") return words;
  while (!words.empty() && words.front() == "help") words.erase(words.begin());
  words.emplace_back("--help");
  return words;
}

std::vector<std::string> skip_separator(std::vector<std::string> words) {
  if (!words.empty() && words.front() == "--") words.erase(words.begin());
  return words;
}

std::string option_before_verb(const Command& app, const std::vector<std::string>& words) {
  if (words.empty() || !words.front().starts_with('-')) return {};
  const std::string name = words.front().substr(0, words.front().find('='));
  if (name == "-h" || app.find_option(name)) return {};
  for (const std::string& word : words) {
    const std::optional<Command> verb = app.find_command(word);
    if (verb && !verb->hidden())
      return fmt::format("option '{}' stands before the verb; options follow it: quench {} ... {}", name, word,
                         words.front());
  }
  return {};
}

std::string unknown_verb(const Command& app, const std::vector<std::string>& words) {
  Command at = app;
  std::string path;
  for (const std::string& word : words) {
    const std::vector<Command> verbs = at.commands();
    // A word after an option may be its value; verbs without subcommands parse the rest themselves.
    if (verbs.empty() || word.starts_with('-')) return {};
    std::vector<std::string> names;
    for (const Command& verb : verbs)
      if (!verb.hidden()) names.push_back(verb.name());
    const std::optional<Command> next = at.find_command(word);
    if (!next) {
      const std::string other = path.empty() ? other_name(word) : "";
      const std::string near = other.empty() ? nearest_name(word, names) : other;
      return fmt::format("unknown verb '{}{}'{}\nverbs{} are {}", path, word,
                         near.empty() ? "" : fmt::format("; did you mean '{}{}'?", path, near),
                         path.empty() ? "" : " of " + path.substr(0, path.size() - 1), fmt::join(names, ", "));
    }
    path += word + " ";
    at = *next;
  }
  return {};
}

void protect_brackets(Command command, std::vector<std::string>& words) {
  bool delimited = false;
  for (std::string& word : words) {
    if (word == "--") {
      delimited = false;
    } else if (word.starts_with('-')) {
      const std::string name = word.starts_with("--") ? word.substr(0, word.find('=')) : word.substr(0, 2);
      const std::optional<CommandOption> option = command.find_option(name);
      delimited = option && option->delimited();
    } else if (const std::optional<Command> verb = command.find_command(word)) {
      command = *verb;
      delimited = false;
    }
    if (!delimited && word.ends_with(']') && word.find('[') != std::string::npos) word += kProtected;
  }
}

std::string unprotected(std::string word) {
  if (word.ends_with(kProtected)) word.pop_back();
  return word;
}

std::string plain_integer(std::string word) {
  const bool negative = word.starts_with('-');
  if (negative || word.starts_with('+')) word.erase(0, 1);
  word.erase(0, std::min(word.find_first_not_of('0'), word.size() - 1));
  return negative ? "-" + word : word;
}

}  // namespace quench
