#pragma once
// The files behind data.train and data.validation.

#include <string>
#include <vector>

#include "train/config/run_config.h"

namespace quench {

// The files that one path or glob pattern (*, ?, [...], {a,b}) stands for, in byte order of their names: the same on
// every machine and locale. A path that exists stands for itself, whatever characters it has. Empty if there is none.
[[nodiscard]] std::vector<std::string> expand_pattern(const std::string& pattern);

// One source of a mix; the weight belongs to all its files together.
struct DataFiles {
  std::vector<std::string> files;
  double weight = 1.0;
};

// Throws Error(not_found) naming the first pattern without files.
[[nodiscard]] std::vector<DataFiles> expand_sources(const std::vector<DataSource>& sources);

}  // namespace quench
