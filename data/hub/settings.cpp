#include "data/hub/settings.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

#include "core/system/check.h"
#include "core/system/file.h"

namespace quench::hub {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

bool is_set(const char* name) {
  std::string value = variable(name);
  std::ranges::transform(value, value.begin(), [](unsigned char c) { return std::toupper(c); });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

fs::path expand_home(const std::string& path) {
  if (path != "~" && !path.starts_with("~/")) return path;
  return fs::path(variable("HOME")) / path.substr(std::min<std::size_t>(path.size(), 2));
}

// Empty without a home folder.
fs::path home_of_hub() {
  if (const std::string home = variable("HF_HOME"); !home.empty()) return expand_home(home);
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) return fs::path(cache) / "huggingface";
  const std::string home = variable("HOME");
  return home.empty() ? fs::path() : fs::path(home) / ".cache" / "huggingface";
}

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

Token read_token(const fs::path& file) {
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
    if (const std::string text = variable(name); !trimmed(text).empty()) return {text, name};
  if (is_set("HF_HUB_DISABLE_IMPLICIT_TOKEN") || file.empty()) return {};
  constexpr std::uint64_t kMaxBytes = 4096;
  try {
    return {read_file(file, kMaxBytes), file.string()};
  } catch (const Error& error) {
    if (error.code() == ErrorCode::not_found) return {};
    throw;
  }
}

std::string read_endpoint() {
  std::string endpoint = variable("HF_ENDPOINT");
  if (endpoint.empty()) return HubSettings().endpoint;
  while (endpoint.ends_with('/')) endpoint.pop_back();
  const bool is_url = endpoint.starts_with("https://") || endpoint.starts_with("http://");
  const auto bad = [](unsigned char c) { return c <= 0x20 || c >= 0x7f || c == '?' || c == '#' || c == '@'; };
  QUENCH_CHECK_AS(ErrorCode::bad_config, is_url && std::ranges::none_of(endpoint, bad),
                  "HF_ENDPOINT is no URL of a hub; expected one like https://huggingface.co, without user, query and "
                  "fragment");
  return endpoint;
}

// File of a distribution whose place libcurl, which a wheel brings from Debian, does not know; empty: libcurl's own.
std::string system_certificates() {
  constexpr std::array kFiles{"/etc/ssl/certs/ca-certificates.crt",  // Debian: libcurl's own
                              "/etc/pki/tls/certs/ca-bundle.crt",    // Fedora, Red Hat
                              "/etc/ssl/ca-bundle.pem",              // openSUSE
                              "/etc/ssl/cert.pem"};                  // Alpine, Arch
  std::error_code ignored;
  const auto found = std::ranges::find_if(kFiles, [&](const char* file) { return fs::exists(file, ignored); });
  return found == kFiles.begin() || found == kFiles.end() ? std::string() : *found;
}

}  // namespace

Token::Token(std::string_view text, std::string_view source) : text_(trimmed(text)), source_(source) {
  const auto bad = [](unsigned char c) { return c <= 0x20 || c >= 0x7f; };
  const bool is_token = std::ranges::none_of(text_, bad);
  if (!is_token) text_.clear();
  QUENCH_CHECK_AS(ErrorCode::bad_config, is_token,
                  "the access token of {} has blanks, control characters or others beyond ASCII; write the token "
                  "there alone",
                  source);
  if (text_.empty()) source_.clear();
}

std::string Token::header() const {
  return "Authorization: Bearer " + text_;
}

std::string Token::redact(std::string text) const {
  if (text_.empty()) return text;
  for (std::size_t at = text.find(text_); at != std::string::npos; at = text.find(text_, at))
    text.replace(at, text_.size(), "(token)");
  return text;
}

fs::path cache_folder() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const std::string folder = variable(name); !folder.empty()) return expand_home(folder);
  const fs::path home = home_of_hub();
  return home.empty() ? fs::path() : home / "hub";
}

HubSettings HubSettings::from_environment(bool with_token) {
  HubSettings settings;
  settings.endpoint = read_endpoint();
  settings.cache = cache_folder();
  const std::string token_path = variable("HF_TOKEN_PATH");
  const fs::path home = home_of_hub();
  settings.token_file = !token_path.empty() ? expand_home(token_path) : home.empty() ? fs::path() : home / "token";
  if (with_token) settings.token = read_token(settings.token_file);
  for (const char* name : {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"})
    if (settings.certificates.empty()) settings.certificates = variable(name);
  if (settings.certificates.empty()) settings.certificates = system_certificates();
  settings.offline = is_set("HF_HUB_OFFLINE") || is_set("TRANSFORMERS_OFFLINE");
  return settings;
}

bool HubSettings::may_send_token() const {
  if (endpoint.starts_with("https://")) return true;
  std::string_view host = std::string_view(endpoint).substr(std::string_view("http://").size());
  host = host.substr(0, host.find('/'));
  if (host.starts_with('[')) return host.substr(0, host.find(']')) == "[::1";
  host = host.substr(0, host.find(':'));
  return host == "localhost" || host == "127.0.0.1";
}

}  // namespace quench::hub
