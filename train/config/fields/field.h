#pragma once
// One key of the config: how its value is read, written, described and compared on resume.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "train/config/config_diff.h"
#include "train/config/run_config.h"

namespace quench {

// What a value may be, beyond its C++ type.
struct ValueRule {
  std::optional<double> minimum = std::nullopt;
  std::optional<double> maximum = std::nullopt;
  bool above_minimum = false;  // minimum itself is excluded
  bool below_maximum = false;
  bool nullable = false;                  // strings: null stands for the empty string
  std::vector<std::string> choices = {};  // strings and dtypes
  std::string unset_word = {};            // optional dtypes: the word for "no value"
};

struct ValueError {
  std::string reason;
  std::string suggestion;
  int line = 0;  // of the offending value, which may lie inside a list; 0 when it did not come from a file
  int column = 0;
};

// How command-line text becomes a JSON value (override.h).
enum class ValueKind { boolean, number, text, text_list, number_list, text_or_number, json };

struct Field {
  std::string path;     // "training.steps", "recipe.filter.include"
  std::string type;     // "integer >= 1", "one of bf16, f32", ...
  std::string help;     // one sentence
  std::string derived;  // where the default is computed: its description; else empty
  ValueKind kind = ValueKind::json;
  bool nullable = false;
  bool architecture = false;  // a Hugging Face config.json field: no default, written only where it is set
  ResumePolicy resume = ResumePolicy::free;
  Json schema;  // JSON Schema of the value

  // Checks and stores; on error the config keeps its value. The field's section must be present.
  std::function<std::optional<ValueError>(const Json& value, RunConfig& config)> read;
  // The value as JSON; null where it is unset or its section is absent.
  std::function<Json(const RunConfig& config)> write;

  [[nodiscard]] std::string_view section() const { return std::string_view(path).substr(0, path.find('.')); }
  [[nodiscard]] std::string_view key() const { return std::string_view(path).substr(path.find('.') + 1); }
};

// Every key, section by section in the order of the resolved config.
[[nodiscard]] const std::vector<Field>& field_table();
// nullptr for an unknown path.
[[nodiscard]] const Field* find_field(std::string_view path);
// Section names in table order.
[[nodiscard]] const std::vector<std::string>& section_names();
// "What the section is about", for documents and schemas.
[[nodiscard]] std::string_view section_help(std::string_view section);
// True for sections that are off unless the config has them; whether a config has one of those; gives it one.
[[nodiscard]] bool is_optional_section(std::string_view section);
[[nodiscard]] bool has_optional_section(const RunConfig& config, std::string_view section);
void add_optional_section(RunConfig& config, std::string_view section);
// The default of every field, with all optional sections present.
[[nodiscard]] const RunConfig& default_config();

// The full path nearest to an unknown one: a key of the same section, the same key of another section, a name that
// other training programs use for it. Empty when none is near.
[[nodiscard]] std::string nearest_field(std::string_view path);

// What to say of a path that is no key: a reason, and the key that was probably meant (or empty).
struct UnknownKey {
  std::string reason;
  std::string suggestion;
};
[[nodiscard]] UnknownKey explain_unknown_key(std::string_view path);

}  // namespace quench
