#pragma once
// Further destinations of the log (core/system/log.h).

#include <spdlog/sinks/sink.h>

#include "core/system/log.h"

namespace quench {

// Adds a destination of all messages, with a level of its own. Not while other threads log.
void add_log_sink(const spdlog::sink_ptr& sink);
void remove_log_sink(const spdlog::sink_ptr& sink);

[[nodiscard]] spdlog::level::level_enum spdlog_level(LogLevel level);

}  // namespace quench
