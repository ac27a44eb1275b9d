#include "train/config/config_schema.h"

#include "train/config/fields/field.h"
#include "train/config/presets.h"

namespace quench {
namespace {

constexpr std::string_view kEndMark = "<!-- end generated -->\n";

std::string begin_mark(std::string_view part) {
  return fmt::format("<!-- begin generated: {} -->\n", part);
}

Json object_schema(std::string_view description) {
  return Json(Json::Object{{"type", "object"},
                           {"description", description},
                           {"properties", Json::object()},
                           {"additionalProperties", false}});
}

Json field_schema(const Field& field) {
  Json schema = field.schema;
  schema.set("description", field.help);
  if (field.derived.empty() && !field.architecture) schema.set("default", field.write(default_config()));
  if (field.path == "model.preset") {
    Json names = Json::array();
    for (const EmbeddedConfig& config : embedded_configs()) {
      if (config.kind == "models") names.push_back(config.name);
    }
    names.push_back(Json());
    schema = Json(Json::Object{{"enum", std::move(names)}, {"description", field.help}});
  }
  return schema;
}

std::string default_text(const Field& field) {
  if (!field.derived.empty()) return field.derived;
  if (field.architecture) return "";
  return "`" + field.write(default_config()).dump() + "`";
}

std::string_view policy_text(ResumePolicy policy) {
  switch (policy) {
    case ResumePolicy::free: return "may change";
    case ResumePolicy::guarded: return "if allowed";
    case ResumePolicy::fixed: return "never";
  }
  return "";
}

std::string cell(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c == '<' ? std::string("&lt;") : c == '>' ? std::string("&gt;") : std::string(1, c);
  }
  return result;
}

std::string section_reference(const std::string& section) {
  std::string text = fmt::format("### {}\n\n{}\n\n", section, section_help(section));
  text += "| key | type | default | on resume | meaning |\n|---|---|---|---|---|\n";
  for (const Field& field : field_table()) {
    if (field.section() != section) continue;
    text += fmt::format("| `{}` | {} | {} | {} | {} |\n", field.path, cell(field.type), cell(default_text(field)),
                        policy_text(field.resume), cell(field.help));
  }
  return text + "\n";
}

}  // namespace

Json config_schema() {
  Json schema = object_schema("A training run of quench.");
  Json& sections = *schema.find("properties");
  sections.set("$schema", Json(Json::Object{{"type", "string"}}));
  for (const std::string& section : section_names()) sections.set(section, object_schema(section_help(section)));
  for (const Field& field : field_table()) {
    Json* parent = sections.find(field.section());
    std::string_view rest = field.key();
    for (std::size_t dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
      Json* properties = parent->find("properties");
      Json* child = properties->find(rest.substr(0, dot));
      parent = child != nullptr ? child : &properties->set(rest.substr(0, dot), object_schema(""));
      rest.remove_prefix(dot + 1);
    }
    parent->find("properties")->set(rest, field_schema(field));
  }
  for (const std::string& section : section_names()) {
    if (is_optional_section(section)) {
      sections.find(section)->set("type", Json(Json::Array{Json("object"), Json("null")}));
    }
  }
  Json document(
      Json::Object{{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", "quench run config"}});
  for (auto& [key, value] : schema.as_object()) document.set(key, std::move(value));
  return document;
}

std::string config_reference() {
  std::string text;
  for (const std::string& section : section_names()) text += section_reference(section);
  return text;
}

bool has_generated_part(std::string_view page, std::string_view part) {
  return page.find(begin_mark(part)) != std::string_view::npos;
}

std::string replace_generated_part(std::string_view page, std::string_view part, std::string_view text) {
  const std::string mark = begin_mark(part);
  const std::size_t begin = page.find(mark);
  const std::size_t end = page.find(kEndMark, begin == std::string_view::npos ? 0 : begin);
  QUENCH_CHECK_AS(ErrorCode::corrupt, begin != std::string_view::npos && end != std::string_view::npos,
                  "the page lacks the marks \"{}\" and \"{}\"", mark.substr(0, mark.size() - 1),
                  kEndMark.substr(0, kEndMark.size() - 1));
  return fmt::format("{}\n{}{}", page.substr(0, begin + mark.size()), text, page.substr(end));
}

}  // namespace quench
