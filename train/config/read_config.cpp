#include "train/config/read_config.h"

#include <algorithm>

#include "core/system/nearest_name.h"
#include "export/table/format.h"
#include "nn/spec/model_fields.h"
#include "train/config/fields/field.h"
#include "train/config/key_aliases.h"
#include "train/config/objective_table.h"
#include "train/config/recipe_choice.h"
#include "train/config/value_codec.h"

namespace quench {
namespace {

// Hostile files may have very many unknown keys.
constexpr std::size_t kMaxIssues = 100;

class Reader {
 public:
  Reader(const Origins& origins, ReadResult& result) : origins_(origins), result_(result) {}

  void read_document(const Json& document) {
    if (!document.is_object()) {
      report("", document, wrong_value("object of sections", document));
      return;
    }
    for (const auto& [name, value] : document.as_object()) {
      if (full()) return;
      if (name != "$schema") read_section(name, value);
    }
  }

 private:
  [[nodiscard]] bool full() const { return result_.issues.size() > kMaxIssues; }

  void read_section(const std::string& name, const Json& value) {
    const std::vector<std::string>& known = section_names();
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      if (!report_foreign_members(name, value)) report_unknown_section(name, value);
      return;
    }
    if (is_optional_section(name)) {
      if (value.is_null()) return;
      add_optional_section(result_.config, name);
    }
    read_members(name, value);
  }

  void read_members(const std::string& prefix, const Json& value) {
    if (!value.is_object()) {
      report(prefix, value, wrong_value("object", value));
      return;
    }
    for (const auto& [key, member] : value.as_object()) {
      if (full()) return;
      const std::string path = prefix + "." + key;
      if (const Field* field = find_field(path)) {
        read_field(*field, member);
      } else if (is_group(path)) {
        read_members(path, member);
      } else {
        report_unknown(prefix, path, member);
      }
    }
  }

  void report_unknown_section(const std::string& name, const Json& value) {
    const std::vector<std::string>& known = section_names();
    UnknownKey unknown = explain_unknown_key(name);
    if (const std::string near = nearest_name(name, known); !near.empty()) unknown = {"unknown key", near};
    unknown.reason.replace(0, std::string_view("unknown key").size(), "unknown section");
    if (unknown.suggestion.empty() && unknown.reason == "unknown section")
      unknown.reason += "; known sections are " + join(known);
    report(name, value, {unknown.reason, unknown.suggestion, value.line(), value.column()});
  }

  // Another framework's section with known keys. False without a report if it has none.
  bool report_foreign_members(const std::string& name, const Json& value) {
    if (!value.is_object() || !nearest_name(name, section_names()).empty()) return false;
    const auto named = [&](const std::string& key) {
      return find_key_alias(key) != nullptr && !find_key_alias(key)->ours.empty();
    };
    const auto& members = value.as_object();
    if (std::none_of(members.begin(), members.end(), [&](const auto& member) { return named(member.first); }))
      return false;
    for (const auto& [key, member] : members) {
      if (full()) break;
      report_unknown(name, fmt::format("{}.{}", name, key), member);
    }
    return true;
  }

  void read_field(const Field& field, const Json& value) {
    result_.given.insert(field.path);
    if (ReadError error = field.read(value, result_.config)) {
      result_.bad.insert(field.path);
      report(field.path, value, *error);
    }
  }

  // Intermediate path such as recipe.filter.
  static bool is_group(const std::string& path) {
    return std::any_of(field_table().begin(), field_table().end(),
                       [&](const Field& field) { return field.path.starts_with(path + "."); });
  }

  void report_unknown(const std::string& prefix, const std::string& path, const Json& value) {
    if (path.starts_with("model.")) {  // config.json field without a remark
      const std::string_view name = std::string_view(path).substr(6);
      const nn::ModelField* field = nn::find_model_field(name);
      if (field != nullptr && nn::field_refusal(nullptr, name, value).empty()) return;
    }
    auto [reason, suggestion] = explain_unknown_key(path);
    if (suggestion.empty() && reason == "unknown key") {
      std::vector<std::string> keys;
      for (const Field& field : field_table()) {
        if (field.path.starts_with(prefix + ".") && !field.architecture)
          keys.push_back(field.path.substr(prefix.size() + 1));
      }
      if (!keys.empty()) reason += fmt::format("; known keys of {} are {}", prefix, join(keys));
    }
    report(path, value, {reason, suggestion, value.line(), value.column()});
  }

  void report(const std::string& path, const Json& value, const ValueError& error) {
    if (result_.issues.size() == kMaxIssues) {
      result_.issues.push_back({origins_.source, "", fmt::format("more than {} errors", kMaxIssues), ""});
      return;
    }
    const int line = error.line > 0 ? error.line : value.line();
    const int column = error.line > 0 ? error.column : value.column();
    result_.issues.push_back({origins_.of(path, line, column), path, error.reason, error.suggestion});
  }

  const Origins& origins_;
  ReadResult& result_;
};

}  // namespace

std::string Origins::of(const std::string& path, int line, int column) const {
  if (const auto argument = arguments.find(path); argument != arguments.end()) return argument->second;
  return line > 0 ? fmt::format("{}:{}:{}", source, line, column) : source;
}

ReadResult read_config(const Json& document, const Origins& origins) {
  ReadResult result;
  Reader(origins, result).read_document(document);
  return result;
}

namespace {

// QAT runs export in the simulated scheme, if the format supports it.
void derive_export(RunConfig& config) {
  ExportSection& section = *config.export_model;
  std::string& scheme = section.quantization.scheme;
  const Scheme* simulated = simulated_scheme(config);
  const ChoiceTable<ExportFormat>& formats = export_formats();
  if (section.format.empty()) {
    const bool codes = !scheme.empty() || simulated != nullptr;
    const auto entries = formats.entries();
    auto found = std::ranges::find(entries, codes, &ExportFormat::quantized);
    // Types of GGUF files have one format alone.
    if (scheme.empty() && simulated != nullptr && !found->problem(*simulated).empty())
      if (const auto other = std::ranges::find_if(
              entries, [&](const ExportFormat& format) { return format.problem(*simulated).empty(); });
          other != entries.end())
        found = other;
    section.format = found->name;
  }
  const ExportFormat* format = formats.find(section.format);
  if (scheme.empty() && format != nullptr && simulated != nullptr &&
      (format->quantized || format->problem(*simulated).empty()))
    scheme = simulated->name;
  if (simulated != nullptr && scheme == simulated->name && section.quantization.rules.empty()) {
    for (const std::string& rule : config.recipe.rules)  // layers without a scheme are excluded as untrained ones
      if (!rule.ends_with("=none")) section.quantization.rules.push_back(rule);
  }
  const Scheme* table = simulated_embedding_scheme(config);
  std::string& embeddings = section.quantization.embeddings;
  if (embeddings.empty() && format != nullptr && table != nullptr && simulated != nullptr &&
      scheme == simulated->name && format->embeddings && format->problem(*table).empty())
    embeddings = table->name;
}

}  // namespace

void derive_values(RunConfig& config, const std::string& name) {
  using Init = ModelSection::Init;
  if (config.run.name.empty()) config.run.name = name.empty() ? "run" : name;
  if (config.run.folder.empty()) config.run.folder = "runs/" + config.run.name;
  const auto inside_run = [&](std::string& folder, std::string_view leaf) {
    if (folder.empty()) folder = fmt::format("{}/{}", config.run.folder, leaf);
  };
  inside_run(config.data.cache, "cache");
  inside_run(config.checkpoint.folder, "checkpoints");
  inside_run(config.metrics.folder, "metrics");
  if (config.export_model) {
    inside_run(config.export_model->folder, "export");
    if (config.export_model->dtype.empty()) config.export_model->dtype = to_string(config.training.dtype);
    derive_export(config);
  }
  for (const ObjectiveEntry& objective : objective_table())
    if (objective.derive != nullptr && has_optional_section(config, objective.name)) objective.derive(config);
  if (config.model.init == Init::automatic) config.model.init = config.model.path.empty() ? Init::random : Init::load;
  LrScheduleSection& schedule = config.lr_schedule;
  const double decay_ratio = lr_schedules().require(schedule.name).decay_ratio;
  if (decay_ratio > 0 && !schedule.decay_steps && !schedule.decay_ratio) {
    // At most what a warm-up leaves.
    const auto steps = static_cast<double>(config.training.steps.value_or(0));
    const double left = steps > 0 ? 1 - static_cast<double>(schedule.warmup_steps) / steps : 1.0;
    schedule.decay_ratio = left > 0 ? std::min(decay_ratio, left) : decay_ratio;
  }
  if (!config.data.has_validation() && config.evaluation.prompts.empty()) config.evaluation.interval = 0;
}

}  // namespace quench
