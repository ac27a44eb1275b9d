#pragma once
// JSON Lines logs, robust to kills and resumes.
//
// One object with an integer "step" per line, in write order, written at once (append_file.h), NaN as null: strict
// JSON, except a last line truncated by a machine crash.

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
  // resume_step: step to continue after (0: from the start). Records of later steps and invalid lines are dropped by
  // atomic file replacement, if any. nullopt: new run; an existing log is renamed to "<path>.1" (or the first free
  // number).
  JsonLines(const std::filesystem::path& path, std::optional<std::int64_t> resume_step);

  void append(const Json& record);
  // Drops records after `step`.
  void rewind(std::int64_t step);
  void close() { file_->close(); }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return file_->path(); }

 private:
  std::unique_ptr<AppendFile> file_;
};

// In file order. Lines other than objects with an integer "step" are skipped and counted in the result, except blank
// ones. Throws io or not_found for an unreadable file.
std::size_t read_json_lines(const std::filesystem::path& path,
                            const std::function<void(const Json& record, std::int64_t step)>& each);

}  // namespace quench
