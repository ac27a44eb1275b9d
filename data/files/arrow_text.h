#pragma once
// Text of Arrow's dates, times, durations and decimals, as they stand in JSON.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace quench {

// `ticks` per second: 1, 1000, 1000000 or 1000000000. Fractions have 3, 6 or 9 digits, none if they are 0.

// "2026-05-02", of days since 1970. Throws corrupt outside of the years 0 to 9999, as timestamp_text().
[[nodiscard]] std::string date_text(std::int64_t days);
// "08:00:00"
[[nodiscard]] std::string time_text(std::int64_t time, std::int64_t ticks);
// Without a zone: "2026-05-02T08:00:00", at midnight the date alone. With one: "2026-05-02T08:00:00+02:00" for a zone
// of that form, else the instant in UTC, "2026-05-02T06:00:00Z".
[[nodiscard]] std::string timestamp_text(std::int64_t time, std::int64_t ticks, std::string_view zone);
// "P0DT8H0M0S", with "-" before a negative one.
[[nodiscard]] std::string duration_text(std::int64_t time, std::int64_t ticks);
// "-12.50" of a two's complement number of at most 32 bytes, lowest first, in units of 10^-scale.
[[nodiscard]] std::string decimal_text(std::span<const std::byte> number, int scale);

}  // namespace quench
