#pragma once
// Random identifiers of answers and calls.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace quench::serve {

// From the system's entropy. Any thread.
[[nodiscard]] std::uint64_t random_seed();

// `prefix` and `digits` random hexadecimal digits.
[[nodiscard]] std::string new_identifier(std::string_view prefix, std::size_t digits);

}  // namespace quench::serve
