#include "train/config/data_files.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>

#include "core/system/check.h"
#include "core/system/missing_path.h"
#include "data/formats/token_format.h"

namespace quench {

std::vector<std::string> expand_pattern(const std::string& pattern) {
  std::error_code ignored;
  if (std::filesystem::exists(pattern, ignored)) return {pattern};
  if (const auto pair = megatron_pair(pattern)) return {pair->string()};
  glob_t found{};
  const int status = glob(pattern.c_str(), GLOB_BRACE | GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> files;
  if (status == 0) files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  QUENCH_CHECK_AS(ErrorCode::out_of_memory, status != GLOB_NOSPACE, "{}: no memory to expand the pattern", pattern);
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

std::vector<DataFiles> expand_sources(const std::vector<DataSource>& sources) {
  std::vector<DataFiles> expanded;
  for (const DataSource& source : sources) {
    expanded.push_back({expand_pattern(source.path), source.weight});
    QUENCH_CHECK_AS(ErrorCode::not_found, !expanded.back().files.empty(), "{}: no file matches{}", source.path,
                    missing_path_text(source.path));
  }
  return expanded;
}

}  // namespace quench
