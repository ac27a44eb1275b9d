#pragma once
// Config key: parsing, serialization, documentation, resume policy.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "train/config/config_diff.h"
#include "train/config/run_config.h"

namespace quench {

// Constraints beyond the C++ type.
struct ValueRule {
  std::optional<double> minimum = std::nullopt;
  std::optional<double> maximum = std::nullopt;
  bool above_minimum = false;  // exclusive minimum
  bool below_maximum = false;
  bool nullable = false;                  // strings: null is the empty string
  bool is_path = false;                   // strings: hf:ORG/NAME becomes its folder in the cache (data/hub/cache.h)
  bool or_one = false;                    // lists of strings: one string is a list of it
  std::vector<std::string> choices = {};  // strings and dtypes
  std::string unset_word = {};            // optional dtypes: "no value"
};

struct ValueError {
  std::string reason;
  std::string suggestion;
  int line = 0;  // line of the invalid value, possibly a list element; 0: not from a file
  int column = 0;
};

// Command-line text to JSON (override.h).
enum class ValueKind { boolean, number, text, text_list, number_list, text_or_number, json };

struct Field {
  std::string path;     // "training.steps", "recipe.filter.include"
  std::string type;     // "integer >= 1", "one of bf16, f32"
  std::string help;     // one sentence
  std::string derived;  // computed default; else empty
  ValueKind kind = ValueKind::json;
  bool nullable = false;
  bool architecture = false;  // Hugging Face config.json field: no default, written only if set
  ResumePolicy resume = ResumePolicy::free;
  Json schema;

  // Stores the value; no change on error. The section must be present.
  std::function<std::optional<ValueError>(const Json& value, RunConfig& config)> read;
  // Null if unset or its section is absent.
  std::function<Json(const RunConfig& config)> write;

  [[nodiscard]] std::string_view section() const { return std::string_view(path).substr(0, path.find('.')); }
  [[nodiscard]] std::string_view key() const { return std::string_view(path).substr(path.find('.') + 1); }
};

// By section, in the order of the resolved config.
[[nodiscard]] const std::vector<Field>& field_table();
// nullptr for an unknown path.
[[nodiscard]] const Field* find_field(std::string_view path);
// In table order.
[[nodiscard]] const std::vector<std::string>& section_names();
[[nodiscard]] std::string_view section_help(std::string_view section);
[[nodiscard]] bool is_optional_section(std::string_view section);
[[nodiscard]] bool has_optional_section(const RunConfig& config, std::string_view section);
void add_optional_section(RunConfig& config, std::string_view section);
// With all optional sections present.
[[nodiscard]] const RunConfig& default_config();

// Nearest valid path: key of the same section, of another section, or alias from other frameworks; by letters, then by
// words. Empty if none.
[[nodiscard]] std::string nearest_field(std::string_view path);

// Reason, and the suggested key (may be empty).
struct UnknownKey {
  std::string reason;
  std::string suggestion;
};
[[nodiscard]] UnknownKey explain_unknown_key(std::string_view path);

}  // namespace quench
