#include "apps/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <sstream>
#include <utility>

namespace quench {
namespace {

// Filter for messages and completion: all commands, in order of addition.
bool every_app(const CLI::App*) {
  return true;
}

}  // namespace

CommandOption CommandOption::required() const {
  option_->required();
  return *this;
}

CommandOption CommandOption::show_default() const {
  option_->capture_default_str();
  return *this;
}

CommandOption CommandOption::type_name(const std::string& name) const {
  option_->type_name(name);
  return *this;
}

CommandOption CommandOption::environment(const std::string& variable) const {
  option_->envname(variable);
  return *this;
}

CommandOption CommandOption::delimiter(char c) const {
  option_->delimiter(c);
  return *this;
}

CommandOption CommandOption::excludes(const CommandOption& other) const {
  option_->excludes(other.option_);
  return *this;
}

CommandOption CommandOption::positive() const {
  option_->check(CLI::PositiveNumber);
  return *this;
}

CommandOption CommandOption::non_negative() const {
  option_->check(CLI::NonNegativeNumber);
  return *this;
}

CommandOption CommandOption::between(int minimum, int maximum) const {
  option_->check(CLI::Range(minimum, maximum));
  return *this;
}

CommandOption CommandOption::between(double minimum, double maximum) const {
  option_->check(CLI::Range(minimum, maximum));
  return *this;
}

bool CommandOption::given() const {
  return option_->count() > 0;
}

std::string CommandOption::shown_name() const {
  if (!option_->get_lnames().empty()) return "--" + option_->get_lnames().front();
  return option_->get_snames().empty() ? "" : "-" + option_->get_snames().front();
}

std::string CommandOption::help() const {
  return option_->get_description();
}

std::string CommandOption::position() const {
  return option_->get_positional() ? option_->get_name(true) : "";
}

std::string CommandOption::type_name() const {
  return option_->get_type_name();
}

bool CommandOption::hidden() const {
  return option_->get_group().empty();
}

bool CommandOption::positional() const {
  return option_->get_positional();
}

int CommandOption::most_values() const {
  return option_->get_items_expected_max();
}

Command Command::add_command(const std::string& name, const std::string& summary) const {
  return Command(app_->add_subcommand(name, summary));
}

template <class T>
CommandOption Command::add_option(const std::string& names, T& target, const std::string& help) const {
  return CommandOption(app_->add_option(names, target, help));
}

template CommandOption Command::add_option(const std::string&, std::string&, const std::string&) const;
template CommandOption Command::add_option(const std::string&, std::filesystem::path&, const std::string&) const;
template CommandOption Command::add_option(const std::string&, int&, const std::string&) const;
template CommandOption Command::add_option(const std::string&, std::int64_t&, const std::string&) const;
template CommandOption Command::add_option(const std::string&, std::uint64_t&, const std::string&) const;
template CommandOption Command::add_option(const std::string&, double&, const std::string&) const;
template CommandOption Command::add_option(const std::string&, std::optional<std::int64_t>&, const std::string&) const;
template CommandOption Command::add_option(const std::string&, std::optional<double>&, const std::string&) const;
template CommandOption Command::add_option(const std::string&, std::vector<std::string>&, const std::string&) const;
template CommandOption Command::add_option(const std::string&, std::vector<std::int64_t>&, const std::string&) const;
template CommandOption Command::add_option(const std::string&, std::vector<std::pair<std::string, std::string>>&,
                                           const std::string&) const;

CommandOption Command::add_flag(const std::string& names, bool& target, const std::string& help) const {
  return CommandOption(app_->add_flag(names, target, help));
}

CommandOption Command::add_flag(const std::string& names, const std::string& help) const {
  return CommandOption(app_->add_flag_callback(
      names, [] {}, help));
}

void Command::footer(const std::string& text) const {
  app_->footer(text);
}

void Command::hide() const {
  app_->group("");
}

void Command::require_commands(int minimum, int maximum) const {
  app_->require_subcommand(static_cast<std::size_t>(minimum), static_cast<std::size_t>(maximum));
}

void Command::pass_words() const {
  app_->prefix_command();
}

void Command::allow_other_words() const {
  app_->allow_extras();
}

void Command::on_run(std::function<void()> run) const {
  app_->callback([run = std::move(run)] {
    try {
      run();
    } catch (const HelpRequest&) {
      throw CLI::CallForHelp();
    }
  });
}

std::string Command::name() const {
  return app_->get_name();
}

std::string Command::summary() const {
  return app_->get_description();
}

bool Command::hidden() const {
  return app_->get_group().empty();
}

bool Command::takes_other_words() const {
  return app_->get_prefix_command() || app_->get_allow_extras();
}

std::vector<std::string> Command::other_words() const {
  return app_->remaining();
}

std::vector<Command> Command::commands() const {
  std::vector<Command> commands;
  for (CLI::App* app : app_->get_subcommands(every_app)) commands.emplace_back(app);
  return commands;
}

std::optional<Command> Command::find_command(const std::string& name) const {
  for (const Command& command : commands())
    if (command.name() == name) return command;
  return std::nullopt;
}

std::vector<CommandOption> Command::options() const {
  std::vector<CommandOption> options;
  for (CLI::Option* option : app_->get_options()) options.emplace_back(option);
  return options;
}

std::optional<CommandOption> Command::find_option(const std::string& name) const {
  CLI::Option* option = app_->get_option_no_throw(name);
  return option == nullptr ? std::nullopt : std::optional(CommandOption(option));
}

bool Command::given() const {
  return app_->parsed();
}

bool Command::any_command_given() const {
  return !app_->get_subcommands().empty();
}

CommandLine::CommandLine(const std::string& summary, const std::string& name, std::function<std::string()> version)
    : app_(std::make_unique<CLI::App>(summary, name)) {
  app_->set_version_flag("--version", std::move(version), "Version, commit, compiler and libraries");
  app_->require_subcommand(1);
}

CommandLine::~CommandLine() = default;

Command CommandLine::program() const {
  return Command(app_.get());
}

CommandLine::Outcome CommandLine::run(std::vector<std::string> words) {
  std::ranges::reverse(words);  // CLI11 reads words in reverse order
  try {
    app_->parse(std::move(words));
    return {};
  } catch (const CLI::ParseError& error) {
    std::ostringstream output, errors;
    const int status = app_->exit(error, output, errors) == 0 ? 0 : 2;
    return {.status = status, .output = output.str(), .errors = errors.str()};
  }
}

}  // namespace quench
