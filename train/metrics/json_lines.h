#pragma once
// Append-only JSON Lines logs that survive kills and resumes.
//
// One JSON object with an integer "step" a line, in order of writing. Every line goes to the operating system at once
// and whole (append_file.h), and NaN is written as null: the file is strict JSON line by line at any moment, except for
// a last line that a machine crash may cut.

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
  // resume_step: the run goes on after that step (0: from the start, but as a continuation of this folder's history).
  //   Records of later steps, which the run will write again, and lines that are no records are dropped by replacing
  //   the file atomically; nothing is rewritten when there is nothing to drop.
  // nullopt: a new run. An existing log is kept, renamed to "<path>.1" (or the first free number).
  JsonLines(const std::filesystem::path& path, std::optional<std::int64_t> resume_step);

  void append(const Json& record);
  // Drops the records of steps after `step`, as a resumed run does.
  void rewind(std::int64_t step);
  void close() { file_->close(); }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return file_->path(); }

 private:
  std::unique_ptr<AppendFile> file_;
};

// Reads records in file order. Lines that are not JSON objects with an integer "step" are not handed on; their number
// is returned. Blank lines do not count. Throws Error(io or not_found) when the file cannot be read.
std::size_t read_json_lines(const std::filesystem::path& path,
                            const std::function<void(const Json& record, std::int64_t step)>& each);

}  // namespace quench
