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

// Backs up a manually edited config.json as config.json.1 etc. No-op for absent files and files in the written format.
void set_aside_edited(const std::filesystem::path& file);

}  // namespace quench
