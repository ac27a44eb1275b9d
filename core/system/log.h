#pragma once
// Levelled log on standard error through spdlog, with an optional rank prefix.
// Use QUENCH_LOG_INFO("loaded {} tensors", n). Coloured on a terminal unless NO_COLOR is set. The level comes from
// QUENCH_LOG_LEVEL (trace..off) or set_log_level.

#include <spdlog/spdlog.h>

#include <string_view>

namespace quench {

// Installs the program's format; rank < 0 means a single process. Call once from main.
void init_logging(int rank = -1);
// What the console shows: "trace", "debug", "info", "warn", "error", "off"; throws bad_config otherwise. Other
// destinations keep their own level.
void set_log_level(std::string_view level);
[[nodiscard]] spdlog::level::level_enum console_log_level();
// Leaves warnings and errors of what the console shows.
void quieten_log();

// A further destination of all messages, with a level of its own. Not while other threads log.
void add_log_sink(const spdlog::sink_ptr& sink);
void remove_log_sink(const spdlog::sink_ptr& sink);

}  // namespace quench

#define QUENCH_LOG_DEBUG(...) ::spdlog::debug(__VA_ARGS__)
#define QUENCH_LOG_INFO(...) ::spdlog::info(__VA_ARGS__)
#define QUENCH_LOG_WARN(...) ::spdlog::warn(__VA_ARGS__)
#define QUENCH_LOG_ERROR(...) ::spdlog::error(__VA_ARGS__)
