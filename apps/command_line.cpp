#include "apps/command_line.h"

#include <vector>

#include "core/system/check.h"
#include "core/system/nearest_name.h"

namespace quench {

std::vector<std::string> replace_help_word(std::vector<std::string> words) {
  if (words.empty() || words.front() != "help") return words;
  words.erase(words.begin());
  words.emplace_back("--help");
  return words;
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
      const std::string near = nearest_name(word, names);
      return fmt::format("unknown verb '{}{}'{}\nverbs{} are {}", path, word,
                         near.empty() ? "" : fmt::format("; did you mean '{}{}'?", path, near),
                         path.empty() ? "" : " of " + path.substr(0, path.size() - 1), fmt::join(names, ", "));
    }
    path += word + " ";
    at = *next;
  }
  return {};
}

}  // namespace quench
