#include "train/check/load.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/json/json_member.h"
#include "core/system/file.h"
#include "core/system/key_error.h"
#include "core/system/log.h"
#include "core/system/missing_path.h"
#include "train/check/run_tokenizer.h"
#include "train/config/config_format_hint.h"
#include "train/config/fields/field.h"
#include "train/config/override.h"
#include "train/config/presets.h"
#include "train/config/read_config.h"
#include "train/config/run_plugins.h"

namespace quench {
namespace {

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{16} << 20;

// The embedded run config of that name, unless a file has it. A folder does not hide it.
const EmbeddedConfig* embedded_run(const std::string& file_or_name) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(file_or_name, ignored);
  return std::filesystem::exists(status) && !std::filesystem::is_directory(status)
             ? nullptr
             : find_embedded_config("runs", file_or_name);
}

// Neither a file nor an embedded run config.
[[noreturn]] void fail_unknown_config(const std::string& name) {
  std::error_code ignored;
  std::string reason = "no such file, and no embedded run config has that name";
  std::string suggestion = nearest_path(name);
  if (suggestion.empty()) suggestion = nearest_embedded_config("runs", name);
  if (std::filesystem::is_directory(name, ignored)) {
    const std::filesystem::path folder = name;
    reason = "a folder; a config is a file, and a model folder is named by --model.path";
    suggestion = std::filesystem::exists(folder / "environment.json", ignored) ? (folder / "config.json").string() : "";
  } else if (const EmbeddedConfig* model = find_embedded_model(name); model != nullptr) {
    const std::vector<std::string> runs = ready_runs(model->name);
    reason += fmt::format("; it is an embedded model: name it in a run by --model.preset={}{}", model->name,
                          runs.empty() ? "" : fmt::format(", or take a ready run: {}", fmt::join(runs, ", ")));
    suggestion.clear();
  }
  throw ConfigError({{name, "", std::move(reason), std::move(suggestion)}});
}

// Origin of the issue's key, else of its section, else the file.
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

// Validation data of an embedded config belong to its training data.
bool validation_is_left_out(const Origins& origins) {
  return origins.arguments.contains("data.train") && !origins.arguments.contains("data.validation");
}

void drop_embedded_validation(Json& document, const Origins& origins) {
  if (!validation_is_left_out(origins)) return;
  if (Json* data = document.find("data"); data != nullptr && data->is_object()) data->erase("validation");
}

// recorded: of a run or checkpoint, or made by the program; its plug-ins are not loaded.
enum class Origin { user, embedded, recorded };

// Files that a user of an embedded config names.
bool names_own_files(std::string_view key) {
  constexpr std::array kKeys = {"data.train", "data.validation", "data.tokenizer", "model.path"};
  return std::ranges::find(kKeys, key) != kKeys.end();
}

// Else reported by check_model().
bool find_model(const ModelSection& model) {
  try {
    return !model_config(model).as_object().empty();
  } catch (const Error&) {
    return false;
  }
}

std::string note_of_unloaded(const std::vector<std::string>& plugins) {
  return fmt::format(
      "this verb does not run code that a config names: {} is not loaded, and what it registers is unknown and not "
      "checked; if you trust it: quench --plugin {} ...",
      fmt::join(plugins, ", "), plugins.front());
}

RunConfig resolve(Json document, Origins origins, const std::string& name, std::span<const std::string> overrides,
                  const CheckOptions& options, Origin from = Origin::user) {
  std::vector<ConfigIssue> issues = apply_overrides(document, overrides, origins.arguments);
  if (from == Origin::embedded) drop_embedded_validation(document, origins);
  try {
    // Names of their entries are valid in the rest of the config; those that are taken are found by the tables' use.
    if (from != Origin::recorded && (options.plugins || origins.arguments.contains("run.plugins")))
      load_run_plugins(document);
    (void)field_table();
  } catch (const Error& error) {
    issues.push_back({origin_of("run.plugins", document, origins), "run.plugins", error.what(), ""});
    throw ConfigError(std::move(issues));
  }
  ReadResult result = read_config(document, origins);
  const std::vector<std::string> unloaded =
      from == Origin::recorded ? std::vector<std::string>() : unloaded_plugins(document);
  result.config.run.plugins = loaded_plugin_paths();
  result.config.run.plugins.insert(result.config.run.plugins.end(), unloaded.begin(), unloaded.end());
  issues.insert(issues.end(), result.issues.begin(), result.issues.end());

  // By the user: an embedded config's evaluation is off without validation data.
  const bool asked = from == Origin::embedded ? origins.arguments.contains("evaluation.interval")
                                              : result.given.contains("evaluation.interval");
  const bool wants_evaluation = asked && result.config.evaluation.interval > 0;
  if (wants_evaluation && !result.config.data.has_validation() && result.config.evaluation.prompts.empty() &&
      !result.bad.contains("data.validation") && !result.bad.contains("data.validation_split") &&
      !result.bad.contains("evaluation.prompts")) {
    issues.push_back({origin_of("evaluation.interval", document, origins), "evaluation.interval",
                      fmt::format("{} steps between evaluations, but data.validation and evaluation.prompts are empty; "
                                  "name held-out data or prompts, or set it to 0",
                                  result.config.evaluation.interval),
                      ""});
  }
  derive_values(result.config, name);
  // The intended key of a misspelled one counts as given.
  const auto skip = [&](std::string_view key) {
    return result.bad.contains(key) || std::any_of(issues.begin(), issues.end(), [&](const ConfigIssue& issue) {
             return !issue.suggestion.empty() && (key == issue.suggestion || key.starts_with(issue.suggestion + "."));
           });
  };
  const bool reads_tokens =
      options.files &&
      std::ranges::none_of(std::array{"model.path", "model.preset", "model.add_tokens", "data.tokenizer",
                                      "model.vocab_size", "lora.trainable_token_indices"},
                           [&](const char* key) { return skip(key); });
  if (reads_tokens && !result.config.model.add_tokens.empty() && find_model(result.config.model)) {
    const auto report = [&](const std::string& key, const char* reason) {
      std::string_view text = reason;
      if (text.starts_with(key + ": ")) text.remove_prefix(key.size() + 2);
      issues.push_back({origin_of(key, document, origins), key, std::string(text), ""});
    };
    try {
      derive_new_tokens(result.config);
    } catch (const KeyError& error) {
      report(error.key(), error.what());
    } catch (const Error& error) {
      report("model.add_tokens", error.what());
    }
  }
  std::vector<ConfigIssue> contradictions = check_run_config(result.config, options, skip);
  for (ConfigIssue& issue : contradictions) {
    issue.origin = origin_of(issue.key, document, origins);
    if (from == Origin::embedded && names_own_files(issue.key) && !origins.arguments.contains(issue.key))
      issue.reason += fmt::format("; name yours with --{}=PATH", issue.key);
    issues.push_back(std::move(issue));
  }
  if (!issues.empty()) {
    if (std::string missing = missing_plugin(result.config.run.folder); from != Origin::recorded && !missing.empty())
      issues.push_back({origin_of("run.plugins", document, origins), "run.plugins", std::move(missing), ""});
    if (!unloaded.empty())
      issues.push_back({origin_of("run.plugins", document, origins), "run.plugins", note_of_unloaded(unloaded), ""});
    throw ConfigError(std::move(issues));
  }
  if (!unloaded.empty()) QUENCH_LOG_WARN("{}: {}", origins.source, note_of_unloaded(unloaded));
  return std::move(result.config);
}

Json parse_document(std::string_view text, const std::string& source) {
  try {
    return Json::parse(text, {.allow_comments = true, .max_bytes = kMaxConfigBytes, .source = source});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt) throw;
    if (const auto other = recognise_syntax(text)) {
      throw ConfigError(
          {{fmt::format("{}:{}", source, other->line), "",
            fmt::format("this looks like {}; a config is one JSON object (comments allowed), as in "
                        "{{\"training\": {{\"steps\": 100}}}}; `quench config cp demo my.json` writes one to edit",
                        other->language),
            ""}});
    }
    // The message begins with "<source>:<line>:<column>: ".
    throw ConfigError({{"", "", error.what(), ""}});
  }
}

std::pair<Json, Origins> read_again(const std::string& file_or_name, std::span<const std::string> overrides) {
  const EmbeddedConfig* embedded = embedded_run(file_or_name);
  Json document = parse_document(
      embedded != nullptr ? std::string(embedded->text) : read_file(file_or_name, kMaxConfigBytes), file_or_name);
  Origins origins{file_or_name, {}};
  (void)apply_overrides(document, overrides, origins.arguments);
  return {std::move(document), std::move(origins)};
}

// Embedded names have no extension but may contain dots.
std::string stem(const std::string& source) {
  const std::filesystem::path name = std::filesystem::path(source).filename();
  return name.extension() == ".json" || name.extension() == ".jsonc" ? name.stem().string() : name.string();
}

}  // namespace

RunConfig run_config_from_json(Json document, const std::string& source, std::span<const std::string> overrides,
                               const CheckOptions& options) {
  return resolve(std::move(document), {source, {}}, stem(source), overrides, options, Origin::recorded);
}

RunConfig parse_run_config(std::string_view text, const std::string& source, std::span<const std::string> overrides,
                           const CheckOptions& options) {
  return resolve(parse_document(text, source), {source, {}}, stem(source), overrides, options);
}

RunConfig load_run_config(const std::string& file_or_name, std::span<const std::string> overrides,
                          const CheckOptions& options) {
  std::error_code ignored;
  if (const EmbeddedConfig* embedded = embedded_run(file_or_name))
    return resolve(parse_document(embedded->text, file_or_name), {file_or_name, {}}, file_or_name, overrides, options,
                   Origin::embedded);
  if (!std::filesystem::exists(file_or_name, ignored) || std::filesystem::is_directory(file_or_name, ignored))
    fail_unknown_config(file_or_name);
  return parse_run_config(read_file(file_or_name, kMaxConfigBytes), file_or_name, overrides, options);
}

std::string left_out_validation(const std::string& file_or_name, std::span<const std::string> overrides) {
  if (embedded_run(file_or_name) == nullptr) return {};
  const auto [document, origins] = read_again(file_or_name, overrides);
  const Json* validation = find_member(document, {"data", "validation"});
  if (validation == nullptr || !validation_is_left_out(origins)) return {};
  if (origins.arguments.contains("data.validation_split")) return {};
  return fmt::format(
      "the validation data {1} of {0} are not used, since data.train was overridden; set --data.validation, or "
      "--data.validation_split to hold out a part of data.train, to evaluate",
      file_or_name, validation->dump());
}

void with_origins(const std::string& file_or_name, std::span<const std::string> overrides,
                  const std::function<void()>& work) {
  try {
    work();
  } catch (const ConfigError& error) {
    const auto [document, origins] = read_again(file_or_name, overrides);
    std::vector<ConfigIssue> issues = error.issues();
    for (ConfigIssue& issue : issues)
      if (issue.origin.empty() && !issue.key.empty()) issue.origin = origin_of(issue.key, document, origins);
    throw ConfigError(std::move(issues));
  } catch (const KeyError& error) {
    const auto [document, origins] = read_again(file_or_name, overrides);
    throw Error(error.code(), fmt::format("{}: {}", origin_of(error.key(), document, origins), error.what()));
  }
}

Json to_json(const RunConfig& config) {
  Json document = Json::object();
  for (const Field& field : field_table()) {
    if (is_optional_section(field.section()) && !has_optional_section(config, field.section())) continue;
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
