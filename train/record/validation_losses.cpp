#include "train/record/validation_losses.h"

#include <cmath>
#include <filesystem>

#include "core/system/check.h"
#include "train/metrics/json_lines.h"
#include "train/metrics/run_files.h"
#include "train/metrics/step_metrics.h"

namespace quench {

void ValidationLosses::add(Entry entry) {
  last = entry;
  if (std::isfinite(entry.loss) && (!best || entry.loss < best->loss)) best = entry;
}

ValidationLosses read_validation_losses(const std::string& metrics, std::int64_t last_step, std::int64_t from) {
  ValidationLosses losses;
  try {
    (void)read_json_lines(std::filesystem::path(metrics) / run_files::kEvaluations,
                          [&](const Json& record, std::int64_t step) {
                            const Json* name = record.find("name");
                            const Json* values = record.find("values");
                            if (step <= from || step > last_step || name == nullptr || *name != Json(kValidation) ||
                                values == nullptr || !values->is_object())
                              return;
                            if (const Json* loss = values->find("loss"); loss != nullptr && loss->is_number())
                              losses.add({step, loss->as_double()});
                          });
  } catch (const Error&) {
    return {};  // no such log
  }
  return losses;
}

}  // namespace quench
