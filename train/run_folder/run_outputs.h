#pragma once
// Pre-run checks of output paths: existing files of others must not block or be overwritten.

#include <filesystem>
#include <string>
#include <vector>

#include "train/config/run_config.h"
#include "train/model_folder/export_folder.h"

namespace quench {

// Export target, with the run's paths excluded. Requires an export section.
[[nodiscard]] ExportTarget export_target(const RunConfig& config);

struct OutputFault {
  std::string key;  // config key
  std::string reason;
};

// Blocked outputs: files in place of folders, an export folder that must not be replaced, a run folder with a
// config.json of another program.
[[nodiscard]] std::vector<OutputFault> output_faults(const RunConfig& config);

// Throws bad_config with all faults.
void require_outputs(const RunConfig& config);

// Backs up a manually edited config.json as config.json.1 etc. before replacement. No-op for absent files and for files
// in the written format.
void set_aside_edited(const std::filesystem::path& file);

}  // namespace quench
