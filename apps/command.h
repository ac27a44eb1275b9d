#pragma once
// Command-line interface: commands with options, flags, positional arguments and subcommands. Parsed by command.cpp
// with CLI11, whose headers compile slowly and are included only there.

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

// Handle of an option, flag or positional argument; copies refer to the same one. Setters return the handle.
class CommandOption {
 public:
  explicit CommandOption(CLI::Option* option) : option_(option) {}

  CommandOption required() const;
  CommandOption show_default() const;                      // shows the target's current value in help
  CommandOption type_name(const std::string& name) const;  // type in help, instead of TEXT, INT, ...
  CommandOption environment(const std::string& variable) const;
  CommandOption delimiter(char c) const;  // allows several values per word
  // Mutually exclusive with `other`.
  CommandOption excludes(const CommandOption& other) const;
  // Range checks; help shows the bounds.
  CommandOption positive() const;
  CommandOption non_negative() const;
  CommandOption between(int minimum, int maximum) const;
  CommandOption between(double minimum, double maximum) const;

  [[nodiscard]] bool given() const;              // on the command line
  [[nodiscard]] std::string shown_name() const;  // "--output" if there is a long name, else "-o"
  [[nodiscard]] std::string position() const;    // name of a positional argument, or ""
  [[nodiscard]] std::string help() const;        // help text
  [[nodiscard]] std::string type_name() const;   // "TEXT", "INT", ..., or the value set by type_name()
  [[nodiscard]] bool hidden() const;             // not in help
  [[nodiscard]] bool positional() const;         // may be given without its name
  [[nodiscard]] int most_values() const;         // maximum number of values; 0: a flag

 private:
  CLI::Option* option_;
};

// Handle of the program, a verb, or a subcommand.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  [[nodiscard]] Command add_command(const std::string& name, const std::string& summary) const;
  // `names`: "-o,--output", or a name without dashes for a positional argument. The target holds the default and must
  // outlive the command. T: a type instantiated in command.cpp (text, paths, numbers, optional numbers, lists of text,
  // lists of pairs of text); others fail to link.
  template <class T>
  CommandOption add_option(const std::string& names, T& target, const std::string& help) const;
  CommandOption add_flag(const std::string& names, bool& target, const std::string& help) const;
  // Flag without a target.
  CommandOption add_flag(const std::string& names, const std::string& help) const;
  void footer(const std::string& text) const;  // after the options in help
  void hide() const;                           // from help, completion and error messages
  // Required number of subcommands; default: any.
  void require_commands(int minimum, int maximum) const;
  // Collects unknown words in other_words(): all words from the first unknown one, or unknown words only.
  void pass_words() const;
  void allow_other_words() const;
  // Callback after parsing if the command is given, after its subcommands' callbacks. Exceptions propagate out of
  // CommandLine::run().
  void on_run(std::function<void()> run) const;

  [[nodiscard]] std::string name() const;
  [[nodiscard]] std::string summary() const;
  [[nodiscard]] bool hidden() const;
  [[nodiscard]] bool takes_other_words() const;
  [[nodiscard]] std::vector<std::string> other_words() const;
  [[nodiscard]] std::vector<Command> commands() const;  // in order of addition
  [[nodiscard]] std::optional<Command> find_command(const std::string& name) const;
  [[nodiscard]] std::vector<CommandOption> options() const;  // including flags and positional arguments, in help order
  [[nodiscard]] std::optional<CommandOption> find_option(const std::string& name) const;  // "--output", "-o"
  // After parsing: True if the command, or one of its subcommands, is given.
  [[nodiscard]] bool given() const;
  [[nodiscard]] bool any_command_given() const;

 private:
  CLI::App* app_;
};

// Exception of a callback: exit with the status; the message is already printed.
struct ExitRequest {
  int status = 0;
};
// Exception of a callback: print the command's help.
struct HelpRequest {};

class CommandLine {
 public:
  // Result of parsing: text to print if no command has run (help, version, or a usage error).
  struct Outcome {
    int status = 0;  // 2 for a usage error
    std::string output{};
    std::string errors{};
  };

  // `version` is called for --version.
  CommandLine(const std::string& summary, const std::string& name, std::function<std::string()> version);
  ~CommandLine();

  [[nodiscard]] Command program() const;
  // Parses the words after the program's name and runs the given commands.
  [[nodiscard]] Outcome run(std::vector<std::string> words);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace quench
