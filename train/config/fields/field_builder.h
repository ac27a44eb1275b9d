#pragma once
// Field of a RunConfig member, by the member's type.

#include <string>
#include <utility>

#include "train/config/fields/field.h"
#include "train/config/value_codec.h"

namespace quench {

// Rows of the field table.
using Fields = std::vector<Field>;

inline constexpr double kMaxSteps = 1e12;  // limit of step counts

// Every value of the member's type.
inline ValueRule any_value() {
  return {};
}
// The value is `minimum` or more.
inline ValueRule at_least(double minimum) {
  return {.minimum = minimum};
}
// The value is more than `minimum`.
inline ValueRule above(double minimum) {
  return {.minimum = minimum, .above_minimum = true};
}
// [minimum, maximum]
inline ValueRule between(double minimum, double maximum) {
  return {.minimum = minimum, .maximum = maximum};
}
// [minimum, maximum)
inline ValueRule from_below(double minimum, double maximum) {
  return {.minimum = minimum, .maximum = maximum, .below_maximum = true};
}
// The text is one of `choices`.
inline ValueRule one_of(std::vector<std::string> choices) {
  return {.choices = std::move(choices)};
}
// A text, or null for none.
inline ValueRule optional_text() {
  return {.nullable = true};
}
// A path, a word or a name of the Hugging Face Hub.
inline ValueRule path_value() {
  return {.is_path = true};
}
// A path, a word or a name of the Hugging Face Hub, or null for none.
inline ValueRule optional_path() {
  return {.nullable = true, .is_path = true};
}

// Address of a member in a config; null if its section is absent.
struct MemberAccess {
  void* (*of)(RunConfig& config);
  const void* (*in)(const RunConfig& config);
};

// add_field() for a member of type T.
template <class T>
[[gnu::noinline]] void add_member(Fields& fields, std::string_view path, MemberAccess member, const ValueRule& rule,
                                  ResumePolicy resume, std::string_view help, std::string_view derived) {
  Field& field = fields.emplace_back();
  field.path = path;
  field.type = Codec<T>::type(rule);
  field.help = help;
  field.derived = derived;
  field.kind = Codec<T>::kind;
  T ignored{};
  field.nullable = !Codec<T>::read(Json(), rule, ignored).has_value();
  field.resume = resume;
  field.schema = Codec<T>::schema(rule);
  field.read = [member, rule, path = field.path](const Json& value, RunConfig& config) -> ReadError {
    auto* target = static_cast<T*>(member.of(config));
    QUENCH_CHECK(target != nullptr, "config field {}: its section is absent", path);
    return Codec<T>::read(value, rule, *target);
  };
  field.write = [member, rule](const RunConfig& config) -> Json {
    const auto* source = static_cast<const T*>(member.in(config));
    return source == nullptr ? Json() : Codec<T>::write(*source, rule);
  };
}

// `Access` maps a RunConfig (const or not) to a member pointer, null if the section is absent. Per member only the
// accessor is instantiated, the rest per type.
template <class Access>
void add_field(Fields& fields, std::string_view path, Access, const ValueRule& rule, ResumePolicy resume,
               std::string_view help, std::string_view derived = {}) {
  using T = std::remove_cvref_t<decltype(*Access()(std::declval<RunConfig&>()))>;
  add_member<T>(fields, path,
                {[](RunConfig& config) -> void* { return Access()(config); },
                 [](const RunConfig& config) -> const void* { return Access()(config); }},
                rule, resume, help, derived);
}

// Accessor for add_field(): a member of a required section.
#define QUENCH_MEMBER(member) [](auto& config) { return &config.member; }
// The same of an optional section.
#define QUENCH_OPTIONAL_MEMBER(section, member) \
  [](auto& config) { return config.section ? &config.section->member : nullptr; }
// The same of the section of a training objective, by its type (ObjectiveSections).
#define QUENCH_OBJECTIVE_MEMBER(Section, member)                \
  [](auto& config) {                                            \
    auto* section = config.objectives.template find<Section>(); \
    return section != nullptr ? &section->member : nullptr;     \
  }

}  // namespace quench
