#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "core/system/log.h"
#include "data/hub/http_client.h"

namespace quench::hub {
namespace {

constexpr double kLongestPause = 60, kLongestAsked = 300;  // seconds
constexpr auto kPollPause = std::chrono::milliseconds(50);

}  // namespace

void Retries::wait(const TransientError& failure) {
  if (attempts_ >= settings_.retries)
    throw Error(failure.code(), fmt::format("{}; given up after {} attempts", failure.what(), attempts_ + 1));
  const double usual = std::min(settings_.first_retry_seconds * std::exp2(attempts_), kLongestPause);
  const double seconds = std::min(failure.retry_after().value_or(usual), kLongestAsked);
  ++attempts_;
  QUENCH_LOG_INFO("{}; trying again in {:.0f} s", failure.what(), std::ceil(seconds));
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < until) {
    if (const int reason = stop_ ? stop_() : 0; reason != 0) throw Stopped(reason);
    std::this_thread::sleep_for(kPollPause);
  }
}

}  // namespace quench::hub
