#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

#include "core/system/choice_table.h"
#include "core/system/nearest_name.h"
#include "nn/spec/model_fields.h"
#include "train/config/fields/field.h"
#include "train/config/fields/section_fields.h"
#include "train/config/key_aliases.h"
#include "train/config/objective_table.h"

namespace quench {
namespace {

struct SectionInfo {
  std::string_view name;
  std::string_view help;
};

constexpr SectionInfo kSections[] = {
    {"run", "The run as a whole."},
    {"model", "The model: exactly one of preset, path, or the fields of a Hugging Face config.json."},
    {"data", "Training and validation data."},
    {"training", "Steps, batches, precision, memory, non-finite values."},
    {"optimizer", "The update of parameters from gradients."},
    {"lr_schedule", "Learning-rate schedule."},
    {"recipe", "Precision of the linear layers."},
    {"lora", "Low-rank adapters over frozen weights (LoRA, DoRA, QLoRA). Off unless present."},
};

// After those of objectives.
constexpr SectionInfo kOtherSections[] = {
    {"parallel", "FSDP, HSDP and expert parallelism (docs/guide/distributed.md)."},
    {"checkpoint", "Saving and resuming."},
    {"metrics", "Console output and records."},
    {"evaluation", "Loss on held-out data during training."},
    {"export", "Model folder written at the end of the run. Off unless present."},
};

struct OptionalSection {
  std::string_view name;
  bool (*present)(const RunConfig&);
  void (*add)(RunConfig&);
};

template <auto member>
constexpr OptionalSection optional_section(std::string_view name) {
  return {name, [](const RunConfig& config) { return (config.*member).has_value(); },
          [](RunConfig& config) { (config.*member).emplace(); }};
}

constexpr OptionalSection kOptionalSections[] = {
    optional_section<&RunConfig::lora>("lora"),
    optional_section<&RunConfig::export_model>("export"),
};

std::vector<SectionInfo> all_sections() {
  std::vector<SectionInfo> all(std::begin(kSections), std::end(kSections));
  for (const ObjectiveEntry& objective : objective_table())
    if (!objective.section.help.empty()) all.push_back({objective.name, objective.section.help});
  all.insert(all.end(), std::begin(kOtherSections), std::end(kOtherSections));
  return all;
}

std::optional<OptionalSection> find_optional_section(std::string_view name) {
  const auto* found = std::ranges::find(kOptionalSections, name, &OptionalSection::name);
  if (found != std::end(kOptionalSections)) return *found;
  const ObjectiveEntry* objective = objective_table().find(name);
  if (objective == nullptr || objective->section.help.empty()) return std::nullopt;
  return OptionalSection{name, objective->section.present, objective->section.add};
}

// Paths in one section, or in all: what follows the first dot.
std::vector<std::string> keys_of(std::string_view section) {
  std::vector<std::string> keys;
  for (const Field& field : field_table()) {
    if (section.empty() || field.section() == section) keys.emplace_back(field.key());
  }
  return keys;
}

bool is_section(std::string_view name) {
  return std::find(section_names().begin(), section_names().end(), name) != section_names().end();
}

// Key equal to or ending in `key` (exclude for filter.exclude); a member of config.json only if there is no other.
const Field* field_with_key(std::string_view key) {
  const Field* member = nullptr;
  for (const Field& field : field_table()) {
    if (field.key() != key && !field.key().ends_with(fmt::format(".{}", key))) continue;
    if (!field.architecture) return &field;
    if (member == nullptr) member = &field;
  }
  return member;
}

// By words over all sections, ours and other programs' names; the section's own keys come first.
std::string nearest_field_by_words(std::string_view section, std::string_view key) {
  std::vector<std::string> names = keys_of(section), ours;
  for (const std::string& name : names) ours.push_back(fmt::format("{}.{}", section, name));
  if (section.empty()) names.clear(), ours.clear();
  for (const Field& field : field_table()) {
    names.emplace_back(field.key());
    ours.push_back(field.path);
  }
  for (const ForeignKey& foreign : key_aliases()) {
    if (foreign.ours.empty()) continue;
    names.emplace_back(foreign.theirs);
    ours.emplace_back(foreign.ours);
  }
  const std::string near = nearest_by_words(key, names);
  return near.empty() ? near : ours[static_cast<std::size_t>(std::ranges::find(names, near) - names.begin())];
}

}  // namespace

namespace {

// Fields of the choices that were registered at one time; earlier tables stay, for references.
struct FieldTable {
  std::size_t registered = 0;
  std::vector<Field> fields;
  std::map<std::string_view, const Field*> by_path{};
  std::vector<std::string> sections{};
  RunConfig defaults{};  // with all optional sections
};

std::vector<Field> make_fields() {
  Fields fields;
  add_run_fields(fields);
  add_model_fields(fields);
  add_data_fields(fields);
  add_training_fields(fields);
  add_optimizer_fields(fields);
  add_recipe_fields(fields);
  add_lora_fields(fields);
  for (const ObjectiveEntry& objective : objective_table())
    if (objective.section.add_fields != nullptr) objective.section.add_fields(fields);
  add_parallel_fields(fields);
  add_output_fields(fields);
  add_export_fields(fields);
  return fields;
}

const FieldTable& current_table() {
  static std::mutex mutex;
  static std::deque<FieldTable> tables;
  const std::lock_guard lock(mutex);
  const std::size_t registered = detail::registered_entries();
  if (!tables.empty() && tables.back().registered == registered) return tables.back();
  FieldTable& table = tables.emplace_back(FieldTable{registered, make_fields()});
  for (const Field& field : table.fields) table.by_path.emplace(field.path, &field);
  for (const SectionInfo& section : all_sections()) {
    table.sections.emplace_back(section.name);
    if (const auto optional = find_optional_section(section.name)) optional->add(table.defaults);
  }
  return table;
}

}  // namespace

const std::vector<Field>& field_table() {
  return current_table().fields;
}

const Field* find_field(std::string_view path) {
  const auto& index = current_table().by_path;
  const auto found = index.find(path);
  return found == index.end() ? nullptr : found->second;
}

const std::vector<std::string>& section_names() {
  return current_table().sections;
}

std::string_view section_help(std::string_view section) {
  for (const SectionInfo& info : all_sections()) {
    if (info.name == section) return info.help;
  }
  return {};
}

bool is_optional_section(std::string_view section) {
  return find_optional_section(section).has_value();
}

bool has_optional_section(const RunConfig& config, std::string_view section) {
  const std::optional<OptionalSection> found = find_optional_section(section);
  return found && found->present(config);
}

void add_optional_section(RunConfig& config, std::string_view section) {
  if (const auto found = find_optional_section(section)) found->add(config);
}

const RunConfig& default_config() {
  return current_table().defaults;
}

std::string nearest_field(std::string_view path) {
  const std::size_t dot = path.find('.');
  const std::string_view section = dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
  const std::string_view key = dot == std::string_view::npos ? path : path.substr(dot + 1);

  std::string near;
  if (is_section(section)) near = nearest_name(key, keys_of(section));
  // Distance one is a typo; more may be another framework's key.
  if (!near.empty() && edit_distance(near, key) <= 1) return fmt::format("{}.{}", section, near);
  if (const Field* elsewhere = field_with_key(key); elsewhere != nullptr && (section.empty() || is_section(section)))
    return elsewhere->path;
  if (const ForeignKey* foreign = find_key_alias(key)) return std::string(foreign->ours);
  if (!near.empty()) return fmt::format("{}.{}", section, near);
  if (const std::string near_section = nearest_name(section, section_names()); !near_section.empty()) {
    near = nearest_name(key, keys_of(near_section));
    if (!near.empty()) return fmt::format("{}.{}", near_section, near);
  }
  near = nearest_name(key, keys_of({}));
  return near.empty() ? nearest_field_by_words(is_section(section) ? section : "", key) : field_with_key(near)->path;
}

UnknownKey explain_unknown_key(std::string_view path) {
  const std::string_view key = path.substr(path.find('.') + 1);
  if (path.starts_with("model.")) {
    const nn::ModelField* field = nn::find_model_field(key);
    if (field != nullptr && field->use == nn::FieldUse::missing)
      return {fmt::format("not supported: {}", field->note), ""};
  }
  const ForeignKey* foreign = find_key_alias(key);
  UnknownKey result{"unknown key", nearest_field(path)};
  if (foreign != nullptr && !foreign->remark.empty() && foreign->ours == result.suggestion)
    result.reason += fmt::format("; {}", foreign->remark);
  return result;
}

}  // namespace quench
