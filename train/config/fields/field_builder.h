#pragma once
// Makes a Field from a member of RunConfig: everything but the words follows from the member's type.

#include <string>
#include <utility>

#include "train/config/fields/field.h"
#include "train/config/value_codec.h"

namespace quench {

using Fields = std::vector<Field>;

// The rows of the table, in order; one function for each file of rows.
void add_run_fields(Fields& fields);
void add_model_fields(Fields& fields);
void add_data_fields(Fields& fields);
void add_training_fields(Fields& fields);
void add_optimizer_fields(Fields& fields);
void add_recipe_fields(Fields& fields);
void add_lora_fields(Fields& fields);
void add_parallel_fields(Fields& fields);
void add_output_fields(Fields& fields);
void add_export_fields(Fields& fields);

inline constexpr double kMaxSteps = 1e12;  // of every count of steps

inline ValueRule any_value() {
  return {};
}
inline ValueRule at_least(double minimum) {
  return {.minimum = minimum};
}
inline ValueRule above(double minimum) {
  return {.minimum = minimum, .above_minimum = true};
}
inline ValueRule between(double minimum, double maximum) {
  return {.minimum = minimum, .maximum = maximum};
}
// [minimum, maximum)
inline ValueRule from_below(double minimum, double maximum) {
  return {.minimum = minimum, .maximum = maximum, .below_maximum = true};
}
inline ValueRule one_of(std::vector<std::string> choices) {
  return {.choices = std::move(choices)};
}
inline ValueRule optional_text() {
  return {.nullable = true};
}

// `access` maps a RunConfig (const or not) to a pointer to the member, null where the member's section is absent.
template <class Access>
Field make_field(std::string path, Access access, ValueRule rule, ResumePolicy resume, std::string help,
                 std::string derived = {}) {
  using T = std::remove_cvref_t<decltype(*access(std::declval<RunConfig&>()))>;
  Field field;
  field.path = std::move(path);
  field.type = Codec<T>::type(rule);
  field.help = std::move(help);
  field.derived = std::move(derived);
  field.kind = Codec<T>::kind;
  T ignored{};
  field.nullable = !Codec<T>::read(Json(), rule, ignored).has_value();
  field.resume = resume;
  field.schema = Codec<T>::schema(rule);
  field.read = [access, rule, path = field.path](const Json& value, RunConfig& config) -> ReadError {
    T* target = access(config);
    QUENCH_CHECK(target != nullptr, "config field {}: its section is absent", path);
    return Codec<T>::read(value, rule, *target);
  };
  field.write = [access, rule](const RunConfig& config) -> Json {
    const T* source = access(config);
    return source == nullptr ? Json() : Codec<T>::write(*source, rule);
  };
  return field;
}

// Member access for make_field, for sections that are always there and for those that may be absent.
#define QUENCH_MEMBER(member) [](auto& config) { return &config.member; }
#define QUENCH_OPTIONAL_MEMBER(section, member) \
  [](auto& config) { return config.section ? &config.section->member : nullptr; }

}  // namespace quench
