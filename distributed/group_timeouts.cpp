#include "distributed/group_timeouts.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "core/system/check.h"

namespace quench::distributed {
namespace {

constexpr double kMostSeconds = 1e6;

void read_seconds(const GetVariable& variable, const char* name, std::chrono::milliseconds& time) {
  const char* value = variable(name);
  if (value == nullptr || *value == '\0') return;
  const std::string_view text = value;
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  QUENCH_CHECK_AS(ErrorCode::bad_config,
                  error == std::errc() && end == text.data() + text.size() && seconds >= 1 && seconds <= kMostSeconds,
                  "the environment variable {} is '{}', expected seconds from 1 to {:.0f}", name, text, kMostSeconds);
  time = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

}  // namespace

GroupOptions read_group_options(const GetVariable& variable) {
  GroupOptions options;
  read_seconds(variable, "QUENCH_INIT_TIMEOUT", options.join_timeout);
  read_seconds(variable, "QUENCH_TIMEOUT", options.timeout);
  return options;
}

GroupOptions read_group_options() {
  return read_group_options([](const char* name) { return std::getenv(name); });
}

}  // namespace quench::distributed
