#pragma once
// Console output, also appended to a log file over all starts: everything from level info up, independent of --quiet,
// metrics.log_level and a closed console.

#include <filesystem>
#include <memory>
#include <string_view>

namespace quench {

class RunLog {
 public:
  // Opens the file (one warning on failure), redirects log messages. Text goes to descriptor `console` if level info is
  // enabled.
  RunLog(const std::filesystem::path& file, int console);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // Whole lines, control characters escaped. Never throws; a write failure costs one warning.
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
