#include "data/files/arrow_text.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include <fmt/format.h>

#include "core/system/check.h"

namespace quench {
namespace {

constexpr std::int64_t kDaySeconds = 86400;

struct Parts {
  std::int64_t whole = 0, rest = 0;  // rest >= 0
};

Parts divided(std::int64_t value, std::int64_t by) {
  Parts parts{value / by, value % by};
  if (parts.rest < 0) parts = {parts.whole - 1, parts.rest + by};
  return parts;
}

// ".250" of 250 milliseconds; empty for 0.
std::string fraction_text(std::int64_t fraction, std::int64_t ticks) {
  if (fraction == 0) return {};
  for (; fraction % 1000 == 0; fraction /= 1000) ticks /= 1000;
  return fmt::format(".{:0{}}", fraction, ticks == 1000 ? 3 : ticks == 1000000 ? 6 : 9);
}

std::string clock_text(std::int64_t seconds) {
  return fmt::format("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

// Seconds of "+02:00"; 0 for another form, and for "+00:00".
std::int64_t zone_seconds(std::string_view zone) {
  const auto digit = [&](std::size_t i) { return zone[i] >= '0' && zone[i] <= '9'; };
  if (zone.size() != 6 || (zone[0] != '+' && zone[0] != '-') || zone[3] != ':') return 0;
  if (!digit(1) || !digit(2) || !digit(4) || !digit(5)) return 0;
  const auto number = [&](std::size_t i) { return std::int64_t{zone[i] - '0'} * 10 + (zone[i + 1] - '0'); };
  return (zone[0] == '-' ? -1 : 1) * (number(1) * 3600 + number(4) * 60);
}

}  // namespace

std::string date_text(std::int64_t days) {
  using namespace std::chrono;
  constexpr std::int64_t kFirst = -719528, kLast = 2932896;  // 0000-01-01, 9999-12-31
  QUENCH_CHECK_AS(ErrorCode::corrupt, days >= kFirst && days <= kLast,
                  "a date {} days from 1970 is outside of the years 0 to 9999", days);
  const year_month_day date{sys_days{std::chrono::days{days}}};
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                     static_cast<unsigned>(date.day()));
}

std::string time_text(std::int64_t time, std::int64_t ticks) {
  const auto [seconds, fraction] = divided(time, ticks);
  QUENCH_CHECK_AS(ErrorCode::corrupt, seconds >= 0 && seconds < kDaySeconds, "a time of {} s is not within a day",
                  seconds);
  return clock_text(seconds) + fraction_text(fraction, ticks);
}

std::string timestamp_text(std::int64_t time, std::int64_t ticks, std::string_view zone) {
  const auto [seconds, fraction] = divided(time, ticks);
  const std::int64_t offset = zone_seconds(zone);
  const auto [day, of_day] = divided(seconds + offset, kDaySeconds);
  if (zone.empty() && of_day == 0 && fraction == 0) return date_text(day);
  const std::string_view shown = offset != 0 || zone.empty() ? zone : "Z";
  return fmt::format("{}T{}{}{}", date_text(day), clock_text(of_day), fraction_text(fraction, ticks), shown);
}

std::string duration_text(std::int64_t time, std::int64_t ticks) {
  const bool negative = time < 0;
  const std::uint64_t size = negative ? ~static_cast<std::uint64_t>(time) + 1 : static_cast<std::uint64_t>(time);
  const auto per_second = static_cast<std::uint64_t>(ticks);
  const std::uint64_t seconds = size / per_second;
  return fmt::format("{}P{}DT{}H{}M{}{}S", negative ? "-" : "", seconds / kDaySeconds, seconds / 3600 % 24,
                     seconds / 60 % 60, seconds % 60,
                     fraction_text(static_cast<std::int64_t>(size % per_second), ticks));
}

std::string decimal_text(std::span<const std::byte> number, int scale) {
  std::array<std::uint32_t, 8> limbs{};  // lowest first
  std::memcpy(limbs.data(), number.data(), std::min(number.size(), sizeof limbs));
  const std::size_t used = number.size() / sizeof(std::uint32_t);
  const bool negative = used > 0 && limbs[used - 1] >> 31 != 0;
  if (negative) {
    std::uint64_t carry = 1;
    for (std::size_t i = 0; i < used; ++i) {
      carry += static_cast<std::uint32_t>(~limbs[i]);
      limbs[i] = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
  }
  std::string digits;  // lowest first
  while (std::ranges::any_of(limbs, [](std::uint32_t limb) { return limb != 0; })) {
    std::uint64_t rest = 0;
    for (std::size_t i = limbs.size(); i-- > 0;) {
      rest = rest << 32 | limbs[i];
      limbs[i] = static_cast<std::uint32_t>(rest / 10);
      rest %= 10;
    }
    digits += static_cast<char>('0' + rest);
  }
  const auto fraction = static_cast<std::size_t>(std::max(scale, 0));
  if (digits.size() <= fraction) digits.append(fraction + 1 - digits.size(), '0');
  std::string text(digits.rbegin(), digits.rend());
  if (fraction > 0) text.insert(text.size() - fraction, 1, '.');
  if (scale < 0 && text != "0") text.append(static_cast<std::size_t>(-scale), '0');
  return (negative ? "-" : "") + text;
}

}  // namespace quench
