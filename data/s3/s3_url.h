#pragma once
// Names of places in S3-compatible storage: s3://BUCKET or s3://BUCKET/PREFIX.

#include <string>
#include <string_view>

namespace quench::s3 {

inline constexpr std::string_view kScheme = "s3://";

// A bucket and the beginning of keys in it.
struct S3Url {
  std::string bucket;
  std::string prefix;  // without slashes at its ends; may be empty

  // Key of an object below the prefix.
  [[nodiscard]] std::string key(std::string_view name) const;
  // "s3://bucket/prefix/name", for messages.
  [[nodiscard]] std::string text(std::string_view name = {}) const;
};

// Throws bad_config naming the fault: another scheme, a bucket that S3 does not allow, empty parts, "..", control
// characters, a key or secret in the URL.
[[nodiscard]] S3Url parse_s3_url(std::string_view text);

}  // namespace quench::s3
