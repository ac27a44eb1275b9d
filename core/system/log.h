#pragma once
// Log on standard error, with optional rank prefix: QUENCH_LOG_INFO("loaded {} tensors", n). Coloured on a terminal
// without NO_COLOR. Level: QUENCH_LOG_LEVEL (trace..off) or set_log_level. Until init_logging or set_log_level nothing
// is printed.

#include <string_view>

#include "core/system/check.h"

namespace quench {

// Severity.
enum class LogLevel { trace, debug, info, warn, error, off };

// Opens the console, as spdlog's default logger. rank < 0: single process. Once, from main.
void init_logging(int rank = -1);
// "trace", "debug", "info", "warn", "error", "off"; else throws bad_config. Other sinks keep theirs.
void set_log_level(std::string_view level);
// Lowest level that standard error shows.
[[nodiscard]] LogLevel console_log_level();
// Console: warnings and errors only.
void quieten_log();

// By any sink.
[[nodiscard]] bool is_logged(LogLevel level);
// To every sink that takes the level. Thread-safe.
void write_log(LogLevel level, std::string_view message);

}  // namespace quench

// Out of line: spdlog's template would compile {fmt} into every file.
#define QUENCH_LOG(level, ...)                                                                           \
  do {                                                                                                   \
    if (::quench::is_logged(level)) ::quench::write_log((level), ::quench::format_message(__VA_ARGS__)); \
  } while (false)
// {fmt} message, built only if a sink takes the level.
#define QUENCH_LOG_DEBUG(...) QUENCH_LOG(::quench::LogLevel::debug, __VA_ARGS__)
// {fmt} message, built only if a sink takes the level.
#define QUENCH_LOG_INFO(...) QUENCH_LOG(::quench::LogLevel::info, __VA_ARGS__)
// {fmt} message, built only if a sink takes the level.
#define QUENCH_LOG_WARN(...) QUENCH_LOG(::quench::LogLevel::warn, __VA_ARGS__)
// {fmt} message, built only if a sink takes the level.
#define QUENCH_LOG_ERROR(...) QUENCH_LOG(::quench::LogLevel::error, __VA_ARGS__)
