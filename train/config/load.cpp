#include "train/config/load.h"

#include <algorithm>
#include <utility>

#include "core/file.h"
#include "train/config/field.h"
#include "train/config/override.h"
#include "train/config/presets.h"
#include "train/config/read_config.h"

namespace quench {
namespace {

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{16} << 20;

// Key, then section, then the file as a whole: whatever of these the issue's key can be traced to.
std::string origin_of(const std::string& key, const Json& document, const Origins& origins) {
  if (const auto argument = origins.arguments.find(key); argument != origins.arguments.end()) return argument->second;
  const Json* value = &document;
  for (std::size_t begin = 0; begin < key.size();) {
    const std::size_t end = std::min(key.find('.', begin), key.size());
    const Json* next = value->is_object() ? value->find(std::string_view(key).substr(begin, end - begin)) : nullptr;
    if (next == nullptr || next->line() == 0) break;
    value = next;
    begin = end + 1;
  }
  return value == &document ? origins.source : origins.of(key, value->line(), value->column());
}

RunConfig resolve(Json document, Origins origins, const std::string& name, std::span<const std::string> overrides,
                  const CheckOptions& options) {
  std::vector<ConfigIssue> issues = apply_overrides(document, overrides, origins.arguments);
  ReadResult result = read_config(document, origins);
  issues.insert(issues.end(), result.issues.begin(), result.issues.end());

  const bool wants_evaluation = result.given.contains("evaluation.interval") && result.config.evaluation.interval > 0;
  if (wants_evaluation && result.config.data.validation.empty() && result.config.evaluation.prompts.empty() &&
      !result.bad.contains("data.validation") && !result.bad.contains("evaluation.prompts")) {
    issues.push_back({origin_of("evaluation.interval", document, origins), "evaluation.interval",
                      fmt::format("{} steps between evaluations, but data.validation and evaluation.prompts are empty",
                                  result.config.evaluation.interval),
                      ""});
  }
  derive_values(result.config, name);
  // What was meant by a misspelled key is as good as given.
  const auto skip = [&](std::string_view key) {
    return result.bad.contains(key) || std::any_of(issues.begin(), issues.end(), [&](const ConfigIssue& issue) {
             return !issue.suggestion.empty() && (key == issue.suggestion || key.starts_with(issue.suggestion + "."));
           });
  };
  std::vector<ConfigIssue> contradictions = check_run_config(result.config, options, skip);
  for (ConfigIssue& issue : contradictions) {
    issue.origin = origin_of(issue.key, document, origins);
    issues.push_back(std::move(issue));
  }
  if (!issues.empty()) throw ConfigError(std::move(issues));
  return std::move(result.config);
}

// The file's name without its extension; embedded names have none but may hold dots.
std::string stem(const std::string& source) {
  const std::filesystem::path name = std::filesystem::path(source).filename();
  return name.extension() == ".json" || name.extension() == ".jsonc" ? name.stem().string() : name.string();
}

}  // namespace

RunConfig run_config_from_json(Json document, const std::string& source, std::span<const std::string> overrides,
                               const CheckOptions& options) {
  return resolve(std::move(document), {source, {}}, stem(source), overrides, options);
}

RunConfig parse_run_config(std::string_view text, const std::string& source, std::span<const std::string> overrides,
                           const CheckOptions& options) {
  Json document;
  try {
    document = Json::parse(text, {.allow_comments = true, .max_bytes = kMaxConfigBytes, .source = source});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt) throw;
    // The parser has put "<source>:<line>:<column>: " in front; there is nothing to add.
    throw ConfigError({{"", "", error.what(), ""}});
  }
  return run_config_from_json(std::move(document), source, overrides, options);
}

RunConfig load_run_config(const std::string& file_or_name, std::span<const std::string> overrides,
                          const CheckOptions& options) {
  std::error_code ignored;
  if (!std::filesystem::exists(file_or_name, ignored)) {
    if (const EmbeddedConfig* embedded = find_embedded_config("runs", file_or_name))
      return parse_run_config(embedded->text, file_or_name, overrides, options);
    const std::string nearest = nearest_embedded_config("runs", file_or_name);
    throw ConfigError({{file_or_name, "", "no such file, and no embedded run config has that name", nearest}});
  }
  return parse_run_config(read_file(file_or_name, kMaxConfigBytes), file_or_name, overrides, options);
}

Json to_json(const RunConfig& config) {
  Json document = Json::object();
  for (const Field& field : field_table()) {
    if (field.section() == "lora" && !config.lora) continue;
    if (field.section() == "export" && !config.export_model) continue;
    const Json value = field.write(config);
    if (field.architecture && value.is_null()) continue;
    Json* parent = &document;
    std::size_t begin = 0;
    for (std::size_t dot = field.path.find('.'); dot != std::string::npos; dot = field.path.find('.', begin)) {
      const std::string_view name = std::string_view(field.path).substr(begin, dot - begin);
      Json* child = parent->find(name);
      parent = child != nullptr ? child : &parent->set(name, Json::object());
      begin = dot + 1;
    }
    parent->set(field.path.substr(begin), value);
  }
  return document;
}

}  // namespace quench
