// Values with several forms.

#include <limits>

#include "train/config/value_codec.h"

namespace quench {
namespace {

Json text_schema() {
  return Json(Json::Object{{"type", "string"}, {"minLength", 1}});
}

const ValueRule& weight_rule() {
  static const ValueRule rule{.minimum = 0.0, .maximum = 1e9, .above_minimum = true};
  return rule;
}

ReadError read_source(const Json& value, DataSource& target) {
  static const ValueRule path{.is_path = true};
  if (value.is_string()) return Codec<std::string>::read(value, path, target.path);
  if (!value.is_object()) return wrong_value("path or {\"path\": ..., \"weight\": ...}", value);
  const auto inside = [](ReadError error, std::string_view key) {
    if (error) error->reason = fmt::format("{}: {}", key, error->reason);
    return error;
  };
  bool has_path = false;
  for (const auto& [key, member] : value.as_object()) {
    ReadError error;
    if (key == "path") {
      has_path = true;
      error = inside(Codec<std::string>::read(member, path, target.path), key);
    } else if (key == "weight") {
      error = inside(Codec<double>::read(member, weight_rule(), target.weight.emplace()), key);
    } else {
      error = ValueError{fmt::format("unknown key \"{}\" of a data source; known keys are path, weight", key), "",
                         member.line(), member.column()};
    }
    if (error) return error;
  }
  if (!has_path) return ValueError{"a data source has no path", "", value.line(), value.column()};
  return std::nullopt;
}

}  // namespace

std::string Codec<std::vector<DataSource>>::type(const ValueRule&) {
  return "path, or list of paths and {\"path\", \"weight\"}";
}
Json Codec<std::vector<DataSource>>::schema(const ValueRule&) {
  Json source(Json::Object{
      {"type", "object"},
      {"properties", Json::Object{{"path", text_schema()}, {"weight", Codec<double>::schema(weight_rule())}}},
      {"required", Json::Array{Json("path")}},
      {"additionalProperties", false}});
  Json element(Json::Object{{"anyOf", Json::Array{text_schema(), std::move(source)}}});
  Json list(Json::Object{{"type", "array"}, {"items", std::move(element)}});
  return Json(Json::Object{{"anyOf", Json::Array{text_schema(), std::move(list)}}});
}
ReadError Codec<std::vector<DataSource>>::read(const Json& value, const ValueRule& rule,
                                               std::vector<DataSource>& target) {
  std::vector<DataSource> sources;
  if (value.is_string()) {
    if (ReadError error = read_source(value, sources.emplace_back())) return wrong_value(type(rule), value);
  } else if (value.is_array()) {
    for (const Json& element : value.as_array()) {
      if (ReadError error = read_source(element, sources.emplace_back())) {
        error->reason = fmt::format("element {} of the list: {}", sources.size(), error->reason);
        return error;
      }
    }
  } else {
    return wrong_value(type(rule), value);
  }
  target = std::move(sources);
  return std::nullopt;
}
Json Codec<std::vector<DataSource>>::write(const std::vector<DataSource>& value, const ValueRule&) {
  Json list = Json::array();
  for (const DataSource& source : value) {
    if (source.weight)
      list.push_back(Json(Json::Object{{"path", source.path}, {"weight", *source.weight}}));
    else
      list.push_back(source.path);
  }
  return list;
}

std::string Codec<Json::Object>::type(const ValueRule&) {
  return "object";
}
Json Codec<Json::Object>::schema(const ValueRule&) {
  return Json(Json::Object{{"type", "object"}});
}
ReadError Codec<Json::Object>::read(const Json& value, const ValueRule& rule, Json::Object& target) {
  if (!value.is_object()) return wrong_value(type(rule), value);
  target = value.as_object();
  return std::nullopt;
}

std::string Codec<ResumeFrom>::type(const ValueRule&) {
  return "auto, never, must, a step (integer >= 1) or the folder of a checkpoint";
}
Json Codec<ResumeFrom>::schema(const ValueRule&) {
  return Json(Json::Object{
      {"anyOf", Json::Array{Json(Json::Object{{"enum", Json::Array{Json("auto"), Json("never"), Json("must")}}}),
                            Json(Json::Object{{"type", "integer"}, {"minimum", 1}}), text_schema()}}});
}
ReadError Codec<ResumeFrom>::read(const Json& value, const ValueRule& rule, ResumeFrom& target) {
  ResumeFrom resume;
  if (value.is_integer()) {
    if (value.as_double() < 1 || value.as_double() >= 9223372036854775808.0) return wrong_value(type(rule), value);
    resume.mode = ResumeFrom::Mode::step;
    resume.step = value.as_int();
  } else if (value.is_string() && !value.as_string().empty() && value.as_string().find('\0') == std::string::npos) {
    const std::string& text = value.as_string();
    if (text == "auto") {
      resume.mode = ResumeFrom::Mode::automatic;
    } else if (text == "never") {
      resume.mode = ResumeFrom::Mode::never;
    } else if (text == "must") {
      resume.mode = ResumeFrom::Mode::must;
    } else {
      resume.mode = ResumeFrom::Mode::path;
      resume.path = text;
    }
  } else {
    return wrong_value(type(rule), value);
  }
  target = std::move(resume);
  return std::nullopt;
}
Json Codec<ResumeFrom>::write(const ResumeFrom& value, const ValueRule&) {
  switch (value.mode) {
    case ResumeFrom::Mode::automatic: return "auto";
    case ResumeFrom::Mode::never: return "never";
    case ResumeFrom::Mode::must: return "must";
    case ResumeFrom::Mode::step: return value.step;
    case ResumeFrom::Mode::path: return value.path;
  }
  QUENCH_FAIL(ErrorCode::invalid_argument, "ResumeFrom: unknown mode");
}

}  // namespace quench
