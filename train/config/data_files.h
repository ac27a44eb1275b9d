#pragma once

#include <string>
#include <vector>

#include "train/config/run_config.h"

namespace quench {

// Files of a path or glob pattern (*, ?, [...], {a,b}), sorted by bytes, independent of locale. An existing path is
// literal. Empty without matches.
[[nodiscard]] std::vector<std::string> expand_pattern(const std::string& pattern);

// One source of a mix; one weight for all its files.
struct DataFiles {
  std::vector<std::string> files;
  double weight = 1.0;
};

// Throws not_found naming the first pattern without files.
[[nodiscard]] std::vector<DataFiles> expand_sources(const std::vector<DataSource>& sources);

}  // namespace quench
