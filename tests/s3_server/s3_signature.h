#pragma once
// Signature version 4 of a request as a server computes it.

#include <httplib.h>

#include <string>

namespace quench::testing {

// Lower-case hexadecimal.
[[nodiscard]] std::string hex_sha256(const std::string& text);

struct CheckedSignature {
  bool is_valid = false;
  std::string key_id, region;
};

[[nodiscard]] CheckedSignature check_signature(const httplib::Request& request, const std::string& secret);

}  // namespace quench::testing
