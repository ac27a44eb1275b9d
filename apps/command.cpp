#include "apps/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <sstream>
#include <type_traits>
#include <utility>

#include "apps/command_line.h"
#include "core/system/check.h"
#include "core/system/nearest_name.h"
#include "data/hub/cache.h"

namespace quench {
namespace {

// Filter for messages and completion: all commands, in order of addition.
bool every_app(const CLI::App*) {
  return true;
}

// Length of a footer's leading usage: the line "Usage: ..." and its continuation lines, which are indented. 0: none.
std::size_t usage_length(const std::string& footer) {
  if (!footer.starts_with("Usage:")) return 0;
  std::size_t end = footer.find('\n');
  while (end != std::string::npos && footer.compare(end + 1, 1, " ") == 0) end = footer.find('\n', end + 1);
  return end == std::string::npos ? footer.size() : end + 1;
}

// Usage of the footer in place of the generated one.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { label("SUBCOMMAND", "VERB"); }

  std::string make_usage(const CLI::App* app, std::string name) const override {
    const std::string footer = app->get_footer();
    const std::size_t length = usage_length(footer);
    if (length == 0) return CLI::Formatter::make_usage(app, std::move(name));
    std::string usage = footer.substr(0, length);
    if (!usage.ends_with('\n')) usage += '\n';
    return usage;
  }

  std::string make_footer(const CLI::App* app) const override {
    const std::string footer = app->get_footer();
    const std::string rest = footer.substr(usage_length(footer));
    return rest.empty() ? rest : rest + "\n";
  }
};

// The innermost command on the command line.
const CLI::App& given_app(const CLI::App& program) {
  const CLI::App* app = &program;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return *app;
}

// "quench config" of `quench config ls`; empty of the program.
std::string parent_path(const CLI::App& app) {
  std::string path;
  for (const CLI::App* parent = app.get_parent(); parent != nullptr; parent = parent->get_parent())
    path = parent->get_name() + (path.empty() ? "" : " " + path);
  return path;
}

// The first unknown word, an option if there is one, with the nearest option. Empty: all words are known.
std::string unknown_word(const CLI::App& app) {
  std::vector<std::string> words = app.remaining();
  if (app.get_allow_extras())  // keys of a config
    std::erase_if(words, [](const std::string& word) { return word.substr(0, word.find('=')).find('.') != word.npos; });
  if (words.empty()) return {};
  const auto option = std::ranges::find_if(words, [](const std::string& word) { return word.starts_with('-'); });
  if (option == words.end()) return fmt::format("unexpected argument '{}'", words.front());
  const std::string name = option->substr(0, option->find('='));
  std::vector<std::string> known;
  for (const CLI::Option* each : app.get_options())
    if (!each->get_group().empty())
      for (const std::string& text : each->get_lnames()) known.push_back("--" + text);
  std::string near = nearest_name(name, known);
  if (near.empty()) {
    const auto longer = std::ranges::find_if(known, [&](const std::string& each) { return each.starts_with(name); });
    if (name.size() > 3 && longer != known.end()) near = *longer;
  }
  return fmt::format("unknown option '{}'{}", name, near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
}

// A command without its verb: the command's help. Else one error, and where the options are listed.
std::string usage_error(const CLI::App& program, const CLI::ParseError& error) {
  const CLI::App& app = given_app(program);
  const std::string parents = parent_path(app);
  const std::string path = parents.empty() ? app.get_name() : parents + " " + app.get_name();
  const std::string unknown = unknown_word(app);
  const bool needs_verb = app.get_require_subcommand_min() > 0;
  if (needs_verb && unknown.empty()) return app.help(parents);
  std::string message = fmt::format("error: {}\n`{} --help` lists the {}\n", unknown.empty() ? error.what() : unknown,
                                    path, needs_verb ? "verbs" : "options");
  std::erase(message, kProtected);
  return message;
}

template <class T>
struct Unwrapped {
  using Type = T;
};
template <class T>
struct Unwrapped<std::optional<T>> {
  using Type = T;
};
template <class T>
struct Unwrapped<std::vector<T>> {
  using Type = T;
};

// Check that runs before the bounds, which read the number.
template <class T>
void require_number(CLI::Option& option) {
  option.transform(CLI::Validator(
      [](std::string& word) {
        constexpr bool kInteger = std::is_integral_v<T>;
        if (!is_number<T>(word))
          return fmt::format("expected {}, got '{}'",
                             !kInteger               ? "a number"
                             : std::is_unsigned_v<T> ? "an integer of 0 or more"
                                                     : "an integer",
                             word);
        if constexpr (kInteger) word = plain_integer(word);
        return std::string();
      },
      ""));
}

// `name`: in help.
CLI::Validator bound(std::string name, std::string expected, std::function<bool(double)> holds) {
  return {[expected = std::move(expected), holds = std::move(holds)](std::string& word) {
            return holds(std::strtod(word.c_str(), nullptr)) ? std::string()
                                                             : fmt::format("expected {}, got '{}'", expected, word);
          },
          std::move(name)};
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

CommandOption CommandOption::takes_hub_name() const {
  option_->transform(CLI::Validator(
      [](std::string& word) {
        word = hub::require_local_path(word);
        return std::string();
      },
      ""));
  return *this;
}

CommandOption CommandOption::excludes(const CommandOption& other) const {
  option_->excludes(other.option_);
  return *this;
}

CommandOption CommandOption::positive() const {
  option_->check(bound("POSITIVE", "a number above 0", [](double value) { return value > 0; }));
  return *this;
}

CommandOption CommandOption::non_negative() const {
  option_->check(bound("NONNEGATIVE", "0 or more", [](double value) { return value >= 0; }));
  return *this;
}

CommandOption CommandOption::between(int minimum, int maximum) const {
  option_->check(bound(fmt::format("INT in [{} - {}]", minimum, maximum), fmt::format("{} to {}", minimum, maximum),
                       [=](double value) { return value >= minimum && value <= maximum; }));
  return *this;
}

CommandOption CommandOption::between(double minimum, double maximum) const {
  option_->check(bound(fmt::format("FLOAT in [{:g} - {:g}]", minimum, maximum),
                       fmt::format("{:g} to {:g}", minimum, maximum),
                       [=](double value) { return value >= minimum && value <= maximum; }));
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

bool CommandOption::delimited() const {
  return option_->get_delimiter() != '\0';
}

int CommandOption::most_values() const {
  return option_->get_items_expected_max();
}

Command Command::add_command(const std::string& name, const std::string& summary) const {
  CLI::App* verb = app_->add_subcommand(name, summary);
  return Command(verb->group("Verbs"));
}

template <class T>
CommandOption Command::add_option(const std::string& names, T& target, const std::string& help) const {
  CLI::Option* option = app_->add_option(names, target, help);
  using Value = typename Unwrapped<T>::Type;
  if constexpr (std::is_arithmetic_v<Value>) {
    require_number<Value>(*option);
    if constexpr (std::is_same_v<T, std::vector<Value>>) option->delimiter(',');
  }
  option->transform(CLI::Validator(
      [](std::string& word) {
        word = unprotected(std::move(word));
        return std::string();
      },
      ""));
  return CommandOption(option);
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
  std::vector<std::string> words = app_->remaining();
  for (std::string& word : words) word = unprotected(std::move(word));
  return words;
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
  app_->formatter(std::make_shared<HelpFormatter>());  // verbs inherit it
  app_->set_version_flag("--version", std::move(version), "Version, commit, compiler and libraries");
  app_->require_subcommand(1);
}

CommandLine::~CommandLine() = default;

Command CommandLine::program() const {
  return Command(app_.get());
}

CommandLine::Outcome CommandLine::run(std::vector<std::string> words) {
  protect_brackets(program(), words);
  std::ranges::reverse(words);  // CLI11 reads words in reverse order
  try {
    app_->parse(std::move(words));
    return {};
  } catch (const CLI::ParseError& error) {
    std::ostringstream output, errors;
    if (app_->exit(error, output, errors) == 0) return {.output = output.str(), .errors = errors.str()};
    return {.status = 2, .errors = usage_error(*app_, error)};
  }
}

}  // namespace quench
