#include "train/metrics/run_log.h"

#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <ctime>
#include <mutex>
#include <optional>

#include "core/system/check.h"
#include "core/system/log_sink.h"
#include "core/system/printable.h"
#include "core/system/transient_line.h"
#include "train/metrics/append_file.h"
#include "train/metrics/terminal.h"

namespace quench {
namespace {

// "2026-01-31 17:05:09 +0100"
std::string local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[64];
  return {text, std::strftime(text, sizeof text, "%F %T %z", &parts)};
}

}  // namespace

// Thread-safe; stops after the first failed write.
class RunLog::File {
 public:
  explicit File(const std::filesystem::path& path) { file_.emplace(path); }

  // Error text, once.
  std::string append(std::string_view lines) {
    const std::lock_guard lock(mutex_);
    if (!file_) return {};
    try {
      file_->append(printable(lines));
    } catch (const Error& error) {
      file_.reset();
      return error.what();
    }
    return {};
  }

 private:
  std::mutex mutex_;
  std::optional<AppendFile> file_;
};

// Failures are not logged: they would reach this sink again.
class RunLog::Sink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit Sink(std::shared_ptr<File> file) : file_(std::move(file)) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    (void)file_->append({line.data(), line.size()});
  }
  void flush_() override {}

 private:
  std::shared_ptr<File> file_;
};

RunLog::RunLog(const std::filesystem::path& file, int console) : console_(console) {
  try {
    file_ = std::make_shared<File>(file);
  } catch (const Error& error) {
    QUENCH_LOG_WARN("the run has no log file: {}", error.what());
    return;
  }
  record(fmt::format("---- {}\n", local_time()));
  sink_ = std::make_shared<Sink>(file_);
  sink_->set_pattern("%l: %v");
  sink_->set_level(spdlog_level(std::min(LogLevel::info, console_log_level())));
  add_log_sink(sink_);
}

RunLog::~RunLog() {
  if (sink_) remove_log_sink(sink_);
}

void RunLog::text(std::string_view lines) {
  record(lines);
  if (console_ < 0 || !console_works_ || console_log_level() > LogLevel::info) return;
  try {
    if (const std::string blanks = take_transient_line(); !blanks.empty()) write_to_descriptor(STDERR_FILENO, blanks);
    write_to_descriptor(console_, printable(lines));
  } catch (const Error& error) {
    console_works_ = false;
    QUENCH_LOG_WARN("no more console output: {}; training continues", error.what());
  }
}

void RunLog::record(std::string_view lines) {
  if (!file_) return;
  if (const std::string fault = file_->append(lines); !fault.empty())
    QUENCH_LOG_WARN("the run's log ends here: {}; training continues", fault);
}

}  // namespace quench
