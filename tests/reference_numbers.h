#pragma once

#include <cstdint>

namespace quench::testing {

// The bits that the scripts of tests/reference make their numbers from.
inline std::uint32_t mixed(std::uint32_t i) {
  i = (i ^ (i >> 16)) * 0x85EBCA6Bu;
  i = (i ^ (i >> 13)) * 0xC2B2AE35u;
  return i ^ (i >> 16);
}

}  // namespace quench::testing
