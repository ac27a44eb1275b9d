#include "apps/serve/api/identifiers.h"

#include <random>

namespace quench::serve {

std::uint64_t random_seed() {
  thread_local std::random_device source;
  return (static_cast<std::uint64_t>(source()) << 32) | source();
}

std::string new_identifier(std::string_view prefix, std::size_t digits) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result(prefix);
  for (std::size_t i = 0; i < digits; i += 16) {
    std::uint64_t bits = random_seed();
    for (std::size_t k = i; k < digits && k < i + 16; ++k, bits >>= 4) result += kDigits[bits & 15];
  }
  return result;
}

}  // namespace quench::serve
