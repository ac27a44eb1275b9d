#include "core/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <cstdlib>
#include <string>

#include "core/check.h"

namespace quench {
namespace {

// https://no-color.org: any non-empty value turns colours off.
spdlog::color_mode color_mode() {
  const char* no_color = std::getenv("NO_COLOR");
  return no_color != nullptr && *no_color != '\0' ? spdlog::color_mode::never : spdlog::color_mode::automatic;
}

}  // namespace

void init_logging(int rank) {
  auto logger = spdlog::get("quench");
  if (!logger) logger = spdlog::stderr_color_mt("quench", color_mode());
  const std::string prefix = rank >= 0 ? fmt::format("[rank {}] ", rank) : std::string();
  logger->set_pattern(prefix + "%^%l%$: %v");
  spdlog::set_default_logger(logger);
  if (const char* level = std::getenv("QUENCH_LOG_LEVEL")) set_log_level(level);
}

void set_log_level(std::string_view level) {
  const auto parsed = spdlog::level::from_str(std::string(level));
  QUENCH_CHECK_AS(ErrorCode::bad_config, parsed != spdlog::level::off || level == "off",
                  "log level '{}' is unknown; use trace, debug, info, warn, error or off", level);
  spdlog::set_level(parsed);
}

}  // namespace quench
