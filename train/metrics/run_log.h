#pragma once
// What a run says: on the console, and in a file of the run folder that grows over all starts of the run.
//
// The file holds everything from level info up, whatever --quiet, metrics.log_level and a closed console leave of it.

#include <filesystem>
#include <memory>
#include <string_view>

namespace quench {

class RunLog {
 public:
  // Opens the file (a file that cannot be opened costs one warning) and takes the program's log messages from now on.
  // Text goes to the descriptor `console` while messages of level info are shown.
  RunLog(const std::filesystem::path& file, int console);
  // Gives the messages back to the console alone.
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // Whole lines for people: to the console and the file, with what a terminal would obey written out
  // (core/system/printable.h). Never throws for a console or file that cannot be written:
  // that costs one warning.
  void text(std::string_view lines);
  // To the file alone.
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
