#include "train/config/objective_table.h"

#include <algorithm>
#include <iterator>

namespace quench {
namespace {

bool has_section(const ObjectiveEntry& entry, const RunConfig& config) {
  return entry.section.present != nullptr && entry.section.present(config);
}

}  // namespace

const ObjectiveEntry& objective_of(const RunConfig& config) {
  const auto entries = objective_table().entries();
  const auto found = std::ranges::find_if(entries, [&](const ObjectiveEntry& entry) {
    return entry.trains != nullptr ? entry.trains(config) : has_section(entry, config);
  });
  return found == entries.end() ? entries.front() : *found;
}

std::int64_t steps_of_data(const RunConfig& config) {
  const ObjectiveEntry& entry = objective_of(config);
  return entry.steps_of_data == nullptr ? 1 : entry.steps_of_data(config);
}

AnswerRecords answer_records(const RunConfig& config) {
  const ObjectiveEntry& objective = objective_of(config);
  return objective.records == nullptr ? AnswerRecords::none : objective.records(config);
}

std::vector<ObjectiveFolder> objective_folders(const RunConfig& config) {
  std::vector<ObjectiveFolder> folders;
  for (const ObjectiveEntry& entry : objective_table())
    if (entry.folders != nullptr && has_section(entry, config))
      std::ranges::move(entry.folders(config), std::back_inserter(folders));
  return folders;
}

std::string_view objective_section_of(const RunConfig& config) {
  for (const ObjectiveEntry& entry : objective_table())
    if (has_section(entry, config)) return entry.name;
  return {};
}

}  // namespace quench
