#pragma once
// Levelled log on standard error, with an optional rank prefix.
// Use QUENCH_LOG_INFO("loaded {} tensors", n). Coloured on a terminal unless NO_COLOR is set. The level comes from
// QUENCH_LOG_LEVEL (trace..off) or set_log_level.

#include <string_view>

#include "core/system/check.h"

namespace quench {

enum class LogLevel { trace, debug, info, warn, error, off };

// Installs the program's format; rank < 0 means a single process. Call once from main.
void init_logging(int rank = -1);
// What the console shows: "trace", "debug", "info", "warn", "error", "off"; throws bad_config otherwise. Other
// destinations keep their own level.
void set_log_level(std::string_view level);
[[nodiscard]] LogLevel console_log_level();
// Leaves warnings and errors of what the console shows.
void quieten_log();

// Whether any destination takes messages of a level.
[[nodiscard]] bool is_logged(LogLevel level);
void write_log(LogLevel level, std::string_view message);

}  // namespace quench

// Formatted by {fmt}'s library: the log's own template would compile all of {fmt} into every file that logs.
#define QUENCH_LOG(level, ...)                                                                           \
  do {                                                                                                   \
    if (::quench::is_logged(level)) ::quench::write_log((level), ::quench::format_message(__VA_ARGS__)); \
  } while (false)
#define QUENCH_LOG_DEBUG(...) QUENCH_LOG(::quench::LogLevel::debug, __VA_ARGS__)
#define QUENCH_LOG_INFO(...) QUENCH_LOG(::quench::LogLevel::info, __VA_ARGS__)
#define QUENCH_LOG_WARN(...) QUENCH_LOG(::quench::LogLevel::warn, __VA_ARGS__)
#define QUENCH_LOG_ERROR(...) QUENCH_LOG(::quench::LogLevel::error, __VA_ARGS__)
