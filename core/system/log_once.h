#pragma once
// Log lines on files that several readers open.

#include <string>

#include "core/system/log.h"

namespace quench {

// write_log(), unless this process has logged the same text so before. Thread-safe.
void write_log_once(LogLevel level, const std::string& message);

}  // namespace quench

// {fmt} message.
#define QUENCH_LOG_INFO_ONCE(...) \
  ::quench::write_log_once(::quench::LogLevel::info, ::quench::format_message(__VA_ARGS__))
// {fmt} message.
#define QUENCH_LOG_WARN_ONCE(...) \
  ::quench::write_log_once(::quench::LogLevel::warn, ::quench::format_message(__VA_ARGS__))
