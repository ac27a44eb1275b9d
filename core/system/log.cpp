#include "core/system/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>

#include "core/system/check.h"
#include "core/system/log_sink.h"
#include "core/system/printable.h"
#include "core/system/transient_line.h"

namespace quench {
namespace {

// https://no-color.org
spdlog::color_mode color_mode() {
  const char* no_color = std::getenv("NO_COLOR");
  return no_color != nullptr && *no_color != '\0' ? spdlog::color_mode::never : spdlog::color_mode::automatic;
}

// Names and values from files are escaped.
class PrintableMessage : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const std::string text = printable({message.payload.data(), message.payload.size()});
    out.append(text.data(), text.data() + text.size());
  }
  [[nodiscard]] std::unique_ptr<custom_flag_formatter> clone() const override {
    return spdlog::details::make_unique<PrintableMessage>();
  }
};

// Clears a progress bar, whose end a shorter message would leave on the row.
class TransientLine : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg&, const std::tm&, spdlog::memory_buf_t& out) override {
    const std::string blanks = take_transient_line();
    out.append(blanks.data(), blanks.data() + blanks.size());
  }
  [[nodiscard]] std::unique_ptr<custom_flag_formatter> clone() const override {
    return spdlog::details::make_unique<TransientLine>();
  }
};

std::atomic<bool> started{false};

// Before init_logging: without a console.
const std::shared_ptr<spdlog::logger>& silent_logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto sink = std::make_shared<spdlog::sinks::null_sink_mt>();
    sink->set_level(spdlog::level::off);
    auto silent = std::make_shared<spdlog::logger>("quench", std::move(sink));
    silent->set_level(spdlog::level::off);
    return silent;
  }();
  return logger;
}

spdlog::logger& current_logger() {
  return started ? *spdlog::default_logger_raw() : *silent_logger();
}

}  // namespace

void init_logging(int rank) {
  auto logger = spdlog::get("quench");
  if (!logger) logger = spdlog::stderr_color_mt("quench", color_mode());
  const std::string prefix = rank >= 0 ? fmt::format("[rank {}] ", rank) : std::string();
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<PrintableMessage>('*').add_flag<TransientLine>('~').set_pattern("%~" + prefix + "%^%l%$: %*");
  logger->set_formatter(std::move(formatter));
  spdlog::set_default_logger(logger);
  started = true;
  if (const char* level = std::getenv("QUENCH_LOG_LEVEL")) set_log_level(level);
}

namespace {

// Lowest sink level; the console sink is first.
void open_logger_for_its_sinks() {
  spdlog::logger& logger = current_logger();
  auto level = spdlog::level::off;
  for (const spdlog::sink_ptr& sink : logger.sinks()) level = std::min(level, sink->level());
  logger.set_level(level);
}

spdlog::level::level_enum console_level() {
  const auto& sinks = current_logger().sinks();
  if (sinks.empty()) return spdlog::level::off;
  const auto level = sinks.front()->level();
  return sinks.size() == 1 ? std::max(level, current_logger().level()) : level;
}

}  // namespace

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::trace: return spdlog::level::trace;
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warn: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
    case LogLevel::off: break;
  }
  return spdlog::level::off;
}

LogLevel console_log_level() {
  const auto level = console_level();
  for (const LogLevel known : {LogLevel::trace, LogLevel::debug, LogLevel::info, LogLevel::warn, LogLevel::error})
    if (level <= spdlog_level(known)) return known;
  return LogLevel::off;
}

bool is_logged(LogLevel level) {
  return current_logger().should_log(spdlog_level(level));
}

void write_log(LogLevel level, std::string_view message) {
  current_logger().log(spdlog_level(level), spdlog::string_view_t(message.data(), message.size()));
}

void add_log_sink(const spdlog::sink_ptr& sink) {
  auto& sinks = current_logger().sinks();
  if (!sinks.empty()) sinks.front()->set_level(console_level());
  sinks.push_back(sink);
  open_logger_for_its_sinks();
}

void remove_log_sink(const spdlog::sink_ptr& sink) {
  std::erase(current_logger().sinks(), sink);
  open_logger_for_its_sinks();
}

void quieten_log() {
  if (console_log_level() < LogLevel::warn) set_log_level("warn");
}

void set_log_level(std::string_view level) {
  const auto parsed = spdlog::level::from_str(std::string(level));
  QUENCH_CHECK_AS(ErrorCode::bad_config, parsed != spdlog::level::off || level == "off",
                  "log level '{}' is unknown; use trace, debug, info, warn, error or off", level);
  if (!started) init_logging();
  const auto& sinks = current_logger().sinks();
  if (!sinks.empty()) sinks.front()->set_level(parsed);
  open_logger_for_its_sinks();
}

}  // namespace quench
