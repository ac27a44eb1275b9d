#pragma once
// Levelled log on standard error through spdlog, with an optional rank prefix.
// Use QUENCH_LOG_INFO("loaded {} tensors", n). Coloured on a terminal unless NO_COLOR is set. The level comes from
// QUENCH_LOG_LEVEL (trace..off) or set_log_level.

#include <spdlog/spdlog.h>

#include <string_view>

namespace quench {

// Installs the program's format; rank < 0 means a single process. Call once from main.
void init_logging(int rank = -1);
// "trace", "debug", "info", "warn", "error", "off"; throws bad_config otherwise.
void set_log_level(std::string_view level);

}  // namespace quench

#define QUENCH_LOG_DEBUG(...) ::spdlog::debug(__VA_ARGS__)
#define QUENCH_LOG_INFO(...) ::spdlog::info(__VA_ARGS__)
#define QUENCH_LOG_WARN(...) ::spdlog::warn(__VA_ARGS__)
#define QUENCH_LOG_ERROR(...) ::spdlog::error(__VA_ARGS__)
