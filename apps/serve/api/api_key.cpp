#include "apps/serve/api/api_key.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>

#include "core/system/check.h"
#include "core/system/file.h"

namespace quench::serve {
namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n";

bool is_address(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> address{};
  return ::inet_pton(AF_INET, host.c_str(), address.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), address.data()) == 1;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  return result;
}

}  // namespace

std::string read_api_key(const std::filesystem::path& file) {
  const std::string text = read_file(file, std::uint64_t{64} << 10);
  const std::size_t begin = text.find_first_not_of(kWhiteSpace);
  QUENCH_CHECK_AS(ErrorCode::bad_config, begin != std::string::npos, "--api-key-file {}: the file holds no key",
                  file.string());
  const std::size_t end = text.find_first_of(kWhiteSpace, begin);
  return text.substr(begin, end == std::string::npos ? end : end - begin);
}

void check_api_key(std::string_view key) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, std::ranges::all_of(key, [](char c) { return c > ' ' && c < '\x7f'; }),
                  "the API key holds a space, a control character or one outside ASCII, which a header cannot carry");
}

bool is_authorized(std::string_view authorization, std::string_view key) noexcept {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() < kScheme.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < kScheme.size(); ++i)
    difference |= static_cast<unsigned>((authorization[i] | (kScheme[i] == ' ' ? 0 : 0x20)) ^ kScheme[i]);
  const std::string_view given = authorization.substr(kScheme.size());
  difference |= static_cast<unsigned>(given.size() != key.size());
  for (std::size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<unsigned>(given[i] ^ (key.empty() ? '\0' : key[i % key.size()]));
  return difference == 0;
}

bool is_loopback(std::string_view host) {
  if (lower(host) == "localhost") return true;
  const std::string text(host);
  in_addr v4{};
  if (::inet_pton(AF_INET, text.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return ::inet_pton(AF_INET6, text.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6) != 0;
}

bool is_own_host(std::string_view host, std::string_view served) {
  if (host.empty()) return true;  // HTTP/1.0
  std::string name;
  if (host.front() == '[') {
    name = host.substr(1, std::min(host.find(']'), host.size()) - 1);
  } else {
    name = host.substr(0, host.find(':'));
  }
  name = lower(name);
  return name == "localhost" || name == lower(served) || is_address(name);
}

}  // namespace quench::serve
