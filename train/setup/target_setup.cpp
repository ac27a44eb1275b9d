#include "train/setup/target_setup.h"

#include <algorithm>
#include <filesystem>

#include "core/system/file.h"
#include "core/system/key_error.h"
#include "train/config/fields/field.h"
#include "train/setup/target_record.h"

namespace quench {

namespace fs = std::filesystem;

std::int64_t kept_tokens(const DistillSection& distill, std::int64_t vocab) {
  return std::min(distill.top_k, vocab);
}

std::shared_ptr<const StoredTargets> open_targets(const RunConfig& config, const RunIdentity& identity,
                                                  const Dataset& data, std::int64_t vocab, std::uint64_t samples) {
  const std::string& folder = config.distill->targets;
  require_targets_folder(folder);
  const TargetRecord stored = read_target_record(folder);
  require_same_targets(stored, target_record(config, identity, data, vocab), folder);
  auto targets = std::make_shared<const StoredTargets>(folder, stored.format);
  const RowSet needed = rows_of_samples(data, samples);
  std::uint64_t rows = 0, missing = 0;
  for (std::size_t source = 0; source < needed.size(); ++source)
    for (std::size_t row = 0; row < needed[source].size(); ++row) {
      if (!needed[source][row]) continue;
      ++rows;
      missing += targets->holds(source, row) ? 0 : 1;
    }
  QUENCH_CHECK_KEY(ErrorCode::bad_config, "distill.targets", missing == 0,
                   "{} has targets of {} of the {} sequences that the run reads (unfinished, or for fewer steps); run "
                   "`{}` again with this config, which adds the others",
                   folder, rows - missing, rows, kTargetsRemedy);
  return targets;
}

}  // namespace quench
