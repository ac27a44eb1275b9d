#pragma once
// File lists of data.train and data.validation.

#include <string>
#include <vector>

#include "train/config/run_config.h"

namespace quench {

// Files of a path or glob pattern (*, ?, [...], {a,b}), sorted by bytes: independent of machine and locale. An existing
// path is taken literally. Empty without matches.
[[nodiscard]] std::vector<std::string> expand_pattern(const std::string& pattern);

// One source of a mix; the weight applies to all of its files together.
struct DataFiles {
  std::vector<std::string> files;
  double weight = 1.0;
};

// Throws not_found naming the first pattern without files.
[[nodiscard]] std::vector<DataFiles> expand_sources(const std::vector<DataSource>& sources);

}  // namespace quench
