#pragma once
// What a run writes, judged before it starts: nothing that others made may be in its way, or be lost by it.

#include <filesystem>
#include <string>
#include <vector>

#include "train/config/run_config.h"
#include "train/model_folder/export_folder.h"

namespace quench {

// Where the run exports to, and what of the run must not be in the way. The config has an export section.
[[nodiscard]] ExportTarget export_target(const RunConfig& config);

struct OutputFault {
  std::string key;  // of the config
  std::string reason;
};

// Everything that forbids the run to write where its config says: files where folders must be, an export folder that
// may not be replaced, a run folder that holds a config.json which no run has written.
[[nodiscard]] std::vector<OutputFault> output_faults(const RunConfig& config);

// Throws bad_config with all of them, if there are any.
void require_outputs(const RunConfig& config);

// Keeps a run's config.json that somebody has edited by hand as config.json.1 and so on, since it is going to be
// replaced. Files as the program writes them, and absent ones, are left alone.
void set_aside_edited(const std::filesystem::path& file);

}  // namespace quench
