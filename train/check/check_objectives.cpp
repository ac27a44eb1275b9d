#include <algorithm>

#include "train/check/checks.h"
#include "train/config/fields/field.h"
#include "train/config/objective_table.h"

namespace quench {

void check_objectives(Checker& checker) {
  const RunConfig& config = checker.config();
  std::string_view first;
  for (const ObjectiveEntry& objective : objective_table()) {
    if (objective.section.help.empty() || !objective.section.present(config)) continue;
    if (objective.check != nullptr) objective.check(checker);
    if (first.empty()) {
      first = objective.name;
      continue;
    }
    const auto& fields = field_table();
    const std::string key = std::ranges::find(fields, objective.name, &Field::section)->path;
    if (checker.usable({key}))
      checker.report(key, "a run has one objective: remove section {}, or section {}", objective.name, first);
  }
}

}  // namespace quench
