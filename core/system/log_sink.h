#pragma once
// Further destinations of log messages.

#include <spdlog/sinks/sink.h>

#include "core/system/log.h"

namespace quench {

// With its own level. Not thread-safe against logging.
void add_log_sink(const spdlog::sink_ptr& sink);
void remove_log_sink(const spdlog::sink_ptr& sink);

[[nodiscard]] spdlog::level::level_enum spdlog_level(LogLevel level);

}  // namespace quench
