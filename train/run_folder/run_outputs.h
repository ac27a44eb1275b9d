#pragma once
// Checks of output paths before a run: other files must not be overwritten.

#include <filesystem>
#include <string>
#include <vector>

#include "train/config/run_config.h"
#include "train/model_folder/export_folder.h"

namespace quench {

// Requires an export section.
[[nodiscard]] ExportTarget export_target(const RunConfig& config);

struct OutputFault {
  std::string key;  // config key
  std::string reason;
};

// Files in place of folders, an export folder that must not be replaced, a run folder with another program's
// config.json.
[[nodiscard]] std::vector<OutputFault> output_faults(const RunConfig& config);

// Throws bad_config with all faults.
void require_outputs(const RunConfig& config);

// Records in metrics.folder that the run named in its file .run wrote, for `resumed` ones to be continued. Names this
// run in it. Throws bad_config for records of another run, or outside the run folder of no named one: a resumed run
// would rewrite them.
void take_metrics(const RunConfig& config, bool resumed);

// For the run folder's config.json: without keys of a single start (checkpoint.resume, allow_changes), which the
// command that continues the run must not repeat.
[[nodiscard]] RunConfig continuing_config(RunConfig config);

// At a start without a checkpoint: warns if the run folder has records of an earlier start, as where the disk of the
// checkpoints is not mounted.
void warn_of_lost_checkpoints(const RunConfig& config);

// Backs up a manually edited config.json as config.json.1 etc. No-op for absent files and files in the written format.
void set_aside_edited(const std::filesystem::path& file);

}  // namespace quench
