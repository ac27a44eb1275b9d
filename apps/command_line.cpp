#include "apps/command_line.h"

#include <vector>

#include "core/system/check.h"
#include "train/config/nearest.h"

namespace quench {

std::string unknown_verb(const CLI::App& app, int count, const char* const* arguments) {
  const CLI::App* at = &app;
  std::string path;
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    const std::vector<const CLI::App*> verbs = at->get_subcommands([](const CLI::App*) { return true; });
    // Words after an option may be its value; verbs without subcommands read the rest themselves.
    if (verbs.empty() || word.starts_with('-')) return {};
    std::vector<std::string> names;
    const CLI::App* next = nullptr;
    for (const CLI::App* verb : verbs) {
      if (verb->get_name() == word) next = verb;
      if (!verb->get_group().empty()) names.push_back(verb->get_name());
    }
    if (next == nullptr) {
      const std::string near = nearest_name(word, names);
      return fmt::format("unknown verb '{}{}'{}\nverbs{} are {}", path, word,
                         near.empty() ? "" : fmt::format("; did you mean '{}{}'?", path, near),
                         path.empty() ? "" : " of " + path.substr(0, path.size() - 1), fmt::join(names, ", "));
    }
    path += word + " ";
    at = next;
  }
  return {};
}

}  // namespace quench
