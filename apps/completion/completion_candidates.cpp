#include "apps/completion/completion_candidates.h"

#include <optional>

#include "apps/options/choice_types.h"
#include "apps/options/config_arguments.h"
#include "train/config/fields/field.h"
#include "train/config/presets.h"

namespace quench {
namespace {

// Values of an enumerated key.
std::vector<std::string> choices_of(const Field& field) {
  std::vector<std::string> choices;
  if (field.kind == ValueKind::boolean) return {"true", "false"};
  if (field.path == "model.preset") {
    for (const EmbeddedConfig& config : embedded_configs())
      if (config.kind == "models") choices.emplace_back(config.name);
    return choices;
  }
  const auto add = [&](const Json& schema) {
    if (const Json* names = schema.find("enum"))
      for (const Json& name : names->as_array())
        if (name.is_string()) choices.push_back(name.as_string());
  };
  add(field.schema);
  if (const Json* either = field.schema.find("anyOf"))
    for (const Json& schema : either->as_array()) add(schema);
  return choices;
}

// State of the command line, word by word.
class Completer {
 public:
  explicit Completer(const Command& program) : program_(program), verb_(program) {}

  void read(const std::string& word) {
    if (!word.starts_with('-') && read_value()) return;
    wanted_ = std::nullopt;
    if (word.starts_with('-')) return read_option(word);
    if (word.starts_with('~') && takes_config(verb_)) return;
    if (word == "help" && verb_.name() == program_.name()) return;
    const Command& verbs = launches() ? program_ : verb_;
    if (const std::optional<Command> next = positionals_ == 0 ? verbs.find_command(word) : std::nullopt) {
      verb_ = *next;
      return;
    }
    ++positionals_;
  }

  Completions at(const std::string& word) {
    unfinished_ = word;
    if (wanted_ && !word.starts_with('-')) {
      add_values("");
    } else if (const std::size_t equals = word.find('='); word.starts_with('-') && equals != std::string::npos) {
      const std::string name = word.substr(0, equals);
      wanted_ = taker_of(name);
      if (wanted_) add_values(name + "=");
    } else if (word.starts_with('-')) {
      add_options();
    } else if (word.starts_with('~')) {
      if (takes_config(verb_)) add_keys("~", "", [](const Field&) { return true; });
    } else {
      add_words();
    }
    return std::move(result_);
  }

 private:
  // True after `quench run`, whose first word is a verb of the program.
  [[nodiscard]] bool launches() const { return verb_.name() == "run"; }

  // Option or config key whose value is the next word.
  struct Taker {
    std::optional<CommandOption> option{};
    const Field* key = nullptr;
    int left = 1;  // remaining values
  };

  [[nodiscard]] std::optional<Taker> taker_of(const std::string& name) const {
    if (const std::optional<CommandOption> option = verb_.find_option(name)) {
      if (option->most_values() == 0) return std::nullopt;
      return Taker{.option = option, .left = option->most_values()};
    }
    if (!takes_config(verb_) || !name.starts_with("--")) return std::nullopt;
    const Field* key = find_field(name.substr(2));
    return key == nullptr ? std::nullopt : std::optional(Taker{.key = key});
  }

  bool read_value() {
    if (!wanted_) return false;
    if (--wanted_->left == 0) wanted_ = std::nullopt;
    return true;
  }

  void read_option(const std::string& word) {
    if (word.find('=') != std::string::npos) return;
    wanted_ = taker_of(word);
    if (wanted_ && wanted_->key != nullptr && wanted_->key->kind == ValueKind::boolean) wanted_ = std::nullopt;
  }

  void add(const std::string& word, std::string help) {
    if (!word.starts_with(unfinished_) || word.empty()) return;
    result_.words.push_back({word, help.substr(0, help.find('\n'))});
  }

  void add_configs(const std::string& prefix, bool models) {
    for (const EmbeddedConfig& config : embedded_configs())
      if (models || config.kind == "runs") add(prefix + std::string(config.name), "embedded config");
  }

  void add_values(const std::string& prefix) {
    if (wanted_->key != nullptr) {
      const std::vector<std::string> choices = choices_of(*wanted_->key);
      for (const std::string& choice : choices) add(prefix + choice, "");
      result_.files = choices.empty() && wanted_->key->kind != ValueKind::number;
      return;
    }
    add_values_of_type(prefix, wanted_->option->type_name());
  }

  // No candidates for numbers; files for texts without a table of names.
  void add_values_of_type(const std::string& prefix, const std::string& type) {
    if (type == kConfigType) add_configs(prefix, false);
    if (type == kConfigNameType) add_configs(prefix, true);
    for (const std::string& choice : choices_of_type(type)) add(prefix + choice, "");
    result_.files = type == kConfigType || type == "TEXT";
  }

  void add_options() {
    for (const CommandOption& option : verb_.options())
      if (!option.hidden()) add(option.shown_name(), option.help());
    if (!takes_config(verb_)) return;
    add_keys("--", "=", [](const Field&) { return true; });
    if (unfinished_.starts_with("--no-"))
      add_keys("--no-", "", [](const Field& field) { return field.kind == ValueKind::boolean; });
  }

  // Sections first, then a section's keys: the full list is too long.
  template <class Filter>
  void add_keys(const std::string& before, const std::string& after, Filter&& fits) {
    const bool section_stands = unfinished_.find('.') != std::string::npos;
    std::string_view last;
    for (const Field& field : field_table()) {
      if (!fits(field)) continue;
      if (section_stands) {
        add(before + field.path + after, field.help);
      } else if (field.section() != last) {
        last = field.section();
        add(before + std::string(last) + ".", std::string(section_help(last)));
      }
    }
  }

  void add_words() {
    if (positionals_ == 0)
      for (const Command& command : (launches() ? program_ : verb_).commands())
        if (!command.hidden()) add(command.name(), command.summary());
    int position = positionals_;
    for (const CommandOption& option : verb_.options())
      if (option.positional() && position-- == 0) return add_values_of_type("", option.type_name());
    // A verb with --model takes the keys of a config alone.
    if (takes_config(verb_) && !verb_.find_option("--model") && positionals_ == 0) add_values_of_type("", kConfigType);
  }

  Command program_;
  Command verb_;
  std::optional<Taker> wanted_;
  int positionals_ = 0;
  std::string unfinished_;
  Completions result_;
};

}  // namespace

Completions complete_words(const Command& program, std::span<const std::string> words) {
  Completer completer(program);
  if (words.empty()) return completer.at("");
  for (const std::string& word : words.first(words.size() - 1)) completer.read(word);
  return completer.at(words.back());
}

}  // namespace quench
