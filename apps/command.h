#pragma once
// Commands with options, flags, positional arguments and subcommands. Only command.cpp includes CLI11, whose headers
// compile slowly.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace quench {

// Handle; copies refer to the same option, flag or positional argument. Setters return it.
class CommandOption {
 public:
  explicit CommandOption(CLI::Option* option) : option_(option) {}

  CommandOption required() const;
  CommandOption show_default() const;                      // the target's current value, in help
  CommandOption type_name(const std::string& name) const;  // in help, instead of TEXT, INT, ...
  CommandOption environment(const std::string& variable) const;
  CommandOption delimiter(char c) const;  // several values per word
  // hf:ORG/NAME stands for its folder in the cache of the Hugging Face Hub; not_found with the download if it has none.
  CommandOption takes_hub_name() const;
  CommandOption excludes(const CommandOption& other) const;
  // Help shows the bounds.
  CommandOption positive() const;
  CommandOption non_negative() const;
  CommandOption between(int minimum, int maximum) const;
  CommandOption between(double minimum, double maximum) const;

  [[nodiscard]] bool given() const;              // on the command line
  [[nodiscard]] std::string shown_name() const;  // "--output" if there is a long name, else "-o"
  [[nodiscard]] std::string position() const;    // name of a positional argument, or ""
  [[nodiscard]] std::string help() const;
  [[nodiscard]] std::string type_name() const;  // "TEXT", "INT", ..., or that of type_name()
  [[nodiscard]] bool hidden() const;            // not in help
  [[nodiscard]] bool positional() const;        // may lack its name
  [[nodiscard]] bool delimited() const;         // several values per word
  [[nodiscard]] int most_values() const;        // 0: a flag

 private:
  CLI::Option* option_;
};

// Program, verb, or subcommand.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  [[nodiscard]] Command add_command(const std::string& name, const std::string& summary) const;
  // `names`: "-o,--output", or without dashes for a positional argument. The target holds the default and must outlive
  // the command. T: instantiated in command.cpp (text, paths, numbers, optional numbers, lists of text, lists of pairs
  // of text); others fail to link. Lists: texts are taken as they are written, brackets and commas included; numbers
  // are several words, or "1,2" or "[1,2]".
  template <class T>
  CommandOption add_option(const std::string& names, T& target, const std::string& help) const;
  CommandOption add_flag(const std::string& names, bool& target, const std::string& help) const;
  // Without a target.
  CommandOption add_flag(const std::string& names, const std::string& help) const;
  // After the options. A beginning "Usage: ..." with indented continuation lines replaces the generated usage.
  void footer(const std::string& text) const;
  void hide() const;  // from help, completion and error messages
  // Of subcommands; default: any.
  void require_commands(int minimum, int maximum) const;
  // Into other_words(): all from the first unknown word on, or unknown ones only.
  void pass_words() const;
  void allow_other_words() const;
  // After parsing, if the command is given, after its subcommands' callbacks. Exceptions propagate out of
  // CommandLine::run().
  void on_run(std::function<void()> run) const;

  [[nodiscard]] std::string name() const;
  [[nodiscard]] std::string summary() const;
  [[nodiscard]] bool hidden() const;
  [[nodiscard]] bool takes_other_words() const;
  [[nodiscard]] std::vector<std::string> other_words() const;
  [[nodiscard]] std::vector<Command> commands() const;  // in order of addition
  [[nodiscard]] std::optional<Command> find_command(const std::string& name) const;
  [[nodiscard]] std::vector<CommandOption> options() const;  // with flags and positional arguments, in help order
  [[nodiscard]] std::optional<CommandOption> find_option(const std::string& name) const;  // "--output", "-o"
  // After parsing: the command, or a subcommand.
  [[nodiscard]] bool given() const;
  [[nodiscard]] bool any_command_given() const;

 private:
  CLI::App* app_;
};

// From a callback: exit with the status; the message is printed.
struct ExitRequest {
  int status = 0;
};
// From a callback: print the command's help.
struct HelpRequest {};

class CommandLine {
 public:
  // Text to print if no command has run: help, version, usage error.
  struct Outcome {
    int status = 0;  // 2: usage error
    std::string output{};
    std::string errors{};
  };

  // `version`: for --version.
  CommandLine(const std::string& summary, const std::string& name, std::function<std::string()> version);
  ~CommandLine();

  [[nodiscard]] Command program() const;
  // `words`: after the program's name.
  [[nodiscard]] Outcome run(std::vector<std::string> words);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace quench
