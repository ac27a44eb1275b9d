#pragma once
// Data files of a config's paths and glob patterns.

#include <string>
#include <vector>

namespace quench {

// Files of a path or glob pattern (*, ?, [...], {a,b}), sorted by bytes, independent of locale. An existing path is
// literal. Empty without matches.
[[nodiscard]] std::vector<std::string> expand_pattern(const std::string& pattern);

}  // namespace quench
