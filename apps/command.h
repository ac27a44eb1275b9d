#pragma once
// The command line of the program: commands with options, flags, positional arguments and subcommands. command.cpp
// parses it with CLI11, whose headers take seconds to compile and are included nowhere else.

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

// A handle of an option, a flag or a positional argument: copies stand for the same one. The setters return the handle.
class CommandOption {
 public:
  explicit CommandOption(CLI::Option* option) : option_(option) {}

  CommandOption required() const;
  CommandOption show_default() const;                      // help shows what the target holds now
  CommandOption type_name(const std::string& name) const;  // help shows it in place of TEXT, INT, ...
  CommandOption environment(const std::string& variable) const;
  CommandOption delimiter(char c) const;  // a word may hold several values
  // Refused together with `other`.
  CommandOption excludes(const CommandOption& other) const;
  // Numbers outside are refused; help shows the bounds.
  CommandOption positive() const;
  CommandOption non_negative() const;
  CommandOption between(int minimum, int maximum) const;
  CommandOption between(double minimum, double maximum) const;

  [[nodiscard]] bool given() const;              // on the command line
  [[nodiscard]] std::string shown_name() const;  // "--output" where there is such a name, else "-o"
  [[nodiscard]] std::string position() const;    // name as a positional argument, or ""
  [[nodiscard]] std::string help() const;        // what it was added with
  [[nodiscard]] std::string type_name() const;   // "TEXT", "INT", ..., or what type_name() has set
  [[nodiscard]] bool hidden() const;             // not in help
  [[nodiscard]] bool positional() const;         // may be given without its name
  [[nodiscard]] int most_values() const;         // words that it takes at most; 0: a flag

 private:
  CLI::Option* option_;
};

// A handle of the program or of one of its verbs, or of a subcommand.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  [[nodiscard]] Command add_command(const std::string& name, const std::string& summary) const;
  // `names`: "-o,--output", or a name without dashes for a positional argument. The target holds the default and must
  // live until the command has run. T is one of the types of the instances in command.cpp: text, paths, numbers,
  // optional numbers, lists of text, lists of pairs of text; others do not link.
  template <class T>
  CommandOption add_option(const std::string& names, T& target, const std::string& help) const;
  CommandOption add_flag(const std::string& names, bool& target, const std::string& help) const;
  // A flag that changes nothing.
  CommandOption add_flag(const std::string& names, const std::string& help) const;
  void footer(const std::string& text) const;  // after the options in help
  void hide() const;                           // from help, completion and the lists of errors
  // How many subcommands a command line names; any number if this is not called.
  void require_commands(int minimum, int maximum) const;
  // The command hands on words that it does not know, as other_words(): all from the first of them, or those alone.
  void pass_words() const;
  void allow_other_words() const;
  // Called when the command line has been read and names the command, after its subcommands. What it throws leaves
  // CommandLine::run().
  void on_run(std::function<void()> run) const;

  [[nodiscard]] std::string name() const;
  [[nodiscard]] std::string summary() const;
  [[nodiscard]] bool hidden() const;
  [[nodiscard]] bool takes_other_words() const;
  [[nodiscard]] std::vector<std::string> other_words() const;
  [[nodiscard]] std::vector<Command> commands() const;  // in the order in which they were added
  [[nodiscard]] std::optional<Command> find_command(const std::string& name) const;
  [[nodiscard]] std::vector<CommandOption> options() const;  // flags and positional arguments too, in the order of help
  [[nodiscard]] std::optional<CommandOption> find_option(const std::string& name) const;  // "--output", "-o"
  // Once the command line has been read: whether it names the command; whether it names one of its subcommands.
  [[nodiscard]] bool given() const;
  [[nodiscard]] bool any_command_given() const;

 private:
  CLI::App* app_;
};

// Thrown by what a command runs: the program ends with the status, and has said what there is to say.
struct ExitRequest {
  int status = 0;
};
// Thrown by what a command runs: it is to print its help.
struct HelpRequest {};

class CommandLine {
 public:
  // What is to be printed where no command has run: help, the version, or what is wrong with the words.
  struct Outcome {
    int status = 0;  // 2 for words that cannot be read
    std::string output{};
    std::string errors{};
  };

  // `version` is called for --version.
  CommandLine(const std::string& summary, const std::string& name, std::function<std::string()> version);
  ~CommandLine();

  [[nodiscard]] Command program() const;
  // Reads the words after the program's name and runs the commands that they name.
  [[nodiscard]] Outcome run(std::vector<std::string> words);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace quench
