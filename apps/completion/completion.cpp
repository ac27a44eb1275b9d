// quench completion: shell completion of verbs, options, config names and keys.

#include <cstdio>

#include "apps/completion/completion_candidates.h"
#include "apps/completion/completion_scripts.h"
#include "apps/verbs.h"

namespace quench {
namespace {

struct Shell {
  const char* name;
  std::string_view script;
};

constexpr Shell kShells[] = {{"bash", kBashCompletion}, {"zsh", kZshCompletion}, {"fish", kFishCompletion}};

void print_candidates(const Command& program, const std::vector<std::string>& words) {
  const std::span<const std::string> behind_program = std::span(words).subspan(words.empty() ? 0 : 1);
  const Completions candidates = complete_words(program, behind_program);
  for (const Completion& candidate : candidates.words)
    std::printf("%s\t%s\n", candidate.word.c_str(), candidate.help.c_str());
  if (candidates.files) std::printf(":files\n");
}

}  // namespace

void add_completion_verb(const Command& app) {
  const Command verb = app.add_command("completion", "Print a script that lets a shell complete command lines");
  verb.footer(
      "Example: source <(quench completion bash)\n"
      "Installed packages bring the scripts of all three shells along.");
  verb.require_commands(1, 1);
  for (const Shell& shell : kShells) {
    const Command print = verb.add_command(shell.name, std::string("Print the script for ") + shell.name);
    print.footer(std::string("Example: quench completion ") + shell.name);
    print.on_run([&shell] { std::fwrite(shell.script.data(), 1, shell.script.size(), stdout); });
  }
  const Command candidates = verb.add_command("candidates", "Candidates for the last word; used by the scripts");
  candidates.hide();
  candidates.pass_words();
  candidates.on_run([app, candidates] { print_candidates(app, candidates.other_words()); });
}

}  // namespace quench
