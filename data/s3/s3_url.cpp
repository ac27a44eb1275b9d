#include "data/s3/s3_url.h"

#include <algorithm>
#include <cctype>

#include "core/system/check.h"
#include "core/system/printable.h"

namespace quench::s3 {
namespace {

constexpr std::size_t kMaxPrefix = 800;  // bytes; a key has 1,024
constexpr std::string_view kExpected = "expected s3://BUCKET/PREFIX";

bool is_bucket(std::string_view name) {
  const auto allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_'; };
  return name.size() >= 3 && name.size() <= 255 && std::ranges::all_of(name, allowed) &&
         std::isalnum(static_cast<unsigned char>(name.front())) != 0 && name.find("..") == std::string_view::npos;
}

std::string prefix_fault(std::string_view prefix) {
  if (prefix.size() > kMaxPrefix) return fmt::format("its prefix has more than {} bytes", kMaxPrefix);
  if (printable(prefix) != prefix || prefix.find_first_of("\n\t\\?#") != std::string_view::npos)
    return "its prefix has control characters, a backslash, \"?\" or \"#\"";
  for (std::size_t begin = 0; begin <= prefix.size();) {
    const std::size_t end = std::min(prefix.find('/', begin), prefix.size());
    const std::string_view part = prefix.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return "a part of its prefix is empty, \".\" or \"..\"";
    begin = end + 1;
  }
  return {};
}

}  // namespace

std::string S3Url::key(std::string_view name) const {
  return prefix.empty() ? std::string(name) : fmt::format("{}/{}", prefix, name);
}

std::string S3Url::text(std::string_view name) const {
  const std::string path = name.empty() ? prefix : key(name);
  return fmt::format("{}{}{}{}", kScheme, bucket, path.empty() ? "" : "/", path);
}

S3Url parse_s3_url(std::string_view text) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, text.starts_with(kScheme), "\"{}\" is no address of S3 storage; {}",
                  printable(text), kExpected);
  std::string_view rest = text.substr(kScheme.size());
  // The text may hold a secret: it is not repeated.
  QUENCH_CHECK_AS(ErrorCode::bad_config, rest.find('@') == std::string_view::npos,
                  "the address has an \"@\"; {}, with the access key in the environment or in ~/.aws/credentials",
                  kExpected);
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  S3Url url{.bucket = std::string(rest.substr(0, slash)), .prefix = {}};
  QUENCH_CHECK_AS(ErrorCode::bad_config, is_bucket(url.bucket), "\"{}\": \"{}\" cannot name a bucket; {}",
                  printable(text), printable(url.bucket), kExpected);
  rest.remove_prefix(std::min(slash + 1, rest.size()));
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const std::string fault = rest.empty() ? std::string() : prefix_fault(rest);
  QUENCH_CHECK_AS(ErrorCode::bad_config, fault.empty(), "\"{}\": {}; {}", printable(text), fault, kExpected);
  url.prefix = rest;
  return url;
}

}  // namespace quench::s3
