#pragma once
// Pseudo-random numbers and checksums that the scripts of tests/reference make too.

#include <cstdint>
#include <span>
#include <string>

#include "core/system/check.h"

namespace quench::testing {

// The bits that the scripts of tests/reference make their numbers from.
inline std::uint32_t mixed(std::uint32_t i) {
  i = (i ^ (i >> 16)) * 0x85EBCA6Bu;
  i = (i ^ (i >> 13)) * 0xC2B2AE35u;
  return i ^ (i >> 16);
}

// FNV-1a of 64 bits, as they write it.
inline std::string checksum(std::span<const std::byte> bytes) {
  std::uint64_t value = 0xCBF29CE484222325u;
  for (const std::byte byte : bytes) value = (value ^ static_cast<std::uint8_t>(byte)) * 0x100000001B3u;
  return fmt::format("{:016x}", value);
}

}  // namespace quench::testing
