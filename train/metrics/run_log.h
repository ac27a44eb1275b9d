#pragma once
// Console output of a run, also appended to a log file over all starts.
//
// The file has everything from level info up, independent of --quiet, metrics.log_level and a closed console.

#include <filesystem>
#include <memory>
#include <string_view>

namespace quench {

class RunLog {
 public:
  // Opens the file (one warning on failure) and redirects log messages. Text goes to descriptor `console` if level info
  // is enabled.
  RunLog(const std::filesystem::path& file, int console);
  // Restores console-only logging.
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // Writes whole lines to console and file, control characters escaped (core/system/printable.h). Never throws; a write
  // failure costs one warning.
  void text(std::string_view lines);
  // File only.
  void record(std::string_view lines);

 private:
  class File;
  class Sink;

  std::shared_ptr<File> file_;
  std::shared_ptr<Sink> sink_;
  int console_;
  bool console_works_ = true;
};

}  // namespace quench
