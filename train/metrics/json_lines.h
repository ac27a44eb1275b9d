#pragma once
// Append-only JSON Lines logs, robust to kills and resumes.
//
// One JSON object with an integer "step" per line, in write order. Lines are written whole and at once (append_file.h),
// NaN as null: strict JSON per line at all times, except a last line truncated by a machine crash.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "core/json/json.h"
#include "train/metrics/append_file.h"

namespace quench {

class JsonLines {
 public:
  // resume_step: the step to continue after (0: from the start, in the same history). Records of later steps and
  // invalid lines are dropped by atomic file replacement, only if there are any. nullopt: new run; an existing log is
  // renamed to "<path>.1" (or the first free number).
  JsonLines(const std::filesystem::path& path, std::optional<std::int64_t> resume_step);

  void append(const Json& record);
  // Drops records of steps after `step`, like a resume.
  void rewind(std::int64_t step);
  void close() { file_->close(); }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return file_->path(); }

 private:
  std::unique_ptr<AppendFile> file_;
};

// Reads records in file order. Lines other than JSON objects with an integer "step" are skipped and counted in the
// result; blank lines are not counted. Throws io or not_found for an unreadable file.
std::size_t read_json_lines(const std::filesystem::path& path,
                            const std::function<void(const Json& record, std::int64_t step)>& each);

}  // namespace quench
