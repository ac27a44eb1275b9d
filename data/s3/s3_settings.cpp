#include "data/s3/s3_settings.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <map>

#include "core/system/check.h"
#include "core/system/file.h"

namespace quench::s3 {
namespace {

namespace fs = std::filesystem;

using Profile = std::map<std::string, std::string, std::less<>>;

constexpr std::string_view kWays =
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for a profile of ~/.aws/credentials";

std::string variable(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return value;
  return {};
}

std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

fs::path file_of(const char* name, const char* usual) {
  if (const std::string path = variable({name}); !path.empty())
    return path.starts_with("~/") ? fs::path(variable({"HOME"})) / path.substr(2) : fs::path(path);
  const std::string home = variable({"HOME"});
  return home.empty() ? fs::path() : fs::path(home) / ".aws" / usual;
}

// Keys of the section [name], empty without it; indented lines belong to a nested setting.
Profile read_section(const fs::path& file, std::string_view name, bool& found) {
  constexpr std::uint64_t kMaxBytes = 1 << 20;
  Profile profile;
  if (file.empty()) return profile;
  std::string text;
  try {
    text = read_file(file, kMaxBytes);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::not_found) return profile;
    throw;
  }
  bool inside = false;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view raw = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    const std::string_view line = trimmed(raw);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      inside = trimmed(line.substr(1, line.find(']') - 1)) == name;
      found |= inside;
      continue;
    }
    const std::size_t equals = line.find('=');
    if (!inside || raw.front() == ' ' || raw.front() == '\t' || equals == std::string_view::npos) continue;
    profile[std::string(trimmed(line.substr(0, equals)))] = trimmed(line.substr(equals + 1));
  }
  return profile;
}

std::string value_of(const Profile& profile, std::string_view key) {
  const auto found = profile.find(key);
  return found == profile.end() ? std::string() : found->second;
}

S3Credentials credentials_of(const Profile& profile, std::string source) {
  return {value_of(profile, "aws_access_key_id"), value_of(profile, "aws_secret_access_key"),
          value_of(profile, "aws_session_token"), std::move(source)};
}

// Access key in the environment.
bool has_variables() {
  const bool id = !variable({"AWS_ACCESS_KEY_ID"}).empty(), secret = !variable({"AWS_SECRET_ACCESS_KEY"}).empty();
  QUENCH_CHECK_AS(ErrorCode::bad_config, id == secret, "{} is set, but {} is not; S3 storage needs both",
                  id ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
                  id ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID");
  return id;
}

std::string require_endpoint(std::string endpoint, std::string_view source) {
  while (endpoint.ends_with('/')) endpoint.pop_back();
  const bool is_url = endpoint.starts_with("https://") || endpoint.starts_with("http://");
  const auto bad = [](unsigned char c) { return c <= 0x20 || c >= 0x7f || c == '?' || c == '#' || c == '@'; };
  QUENCH_CHECK_AS(ErrorCode::bad_config, is_url && std::ranges::none_of(endpoint, bad),
                  "{} is no URL of S3 storage; expected one like https://storage.example.com:9000, without user, query "
                  "and fragment",
                  source);
  return endpoint;
}

}  // namespace

S3Credentials::S3Credentials(std::string key_id, std::string secret, std::string session, std::string source)
    : key_id_(std::move(key_id)), secret_(std::move(secret)), session_(std::move(session)), source_(std::move(source)) {
  const auto bad = [](unsigned char c) { return c <= 0x20 || c >= 0x7f; };
  const bool is_key = !key_id_.empty() && !secret_.empty() && std::ranges::none_of(key_id_ + secret_ + session_, bad);
  if (!is_key) key_id_ = secret_ = session_ = {};
  QUENCH_CHECK_AS(ErrorCode::bad_config, is_key,
                  "the access key of {} has an empty part, blanks or characters beyond ASCII", source_);
}

std::string S3Credentials::redact(std::string text) const {
  for (const std::string* part : {&secret_, &session_, &key_id_}) {
    if (part->empty()) continue;
    for (std::size_t at = text.find(*part); at != std::string::npos; at = text.find(*part, at))
      text.replace(at, part->size(), "(key)");
  }
  return text;
}

S3Settings S3Settings::from_environment() {
  S3Settings settings;
  settings.http = hub::HubSettings::from_environment(false);
  settings.http.endpoint_key = "AWS_ENDPOINT_URL_S3";
  if (const std::string file = variable({"AWS_CA_BUNDLE"}); !file.empty()) settings.http.certificates = file;

  const std::string chosen = variable({"AWS_PROFILE", "AWS_DEFAULT_PROFILE"});
  const std::string name = chosen.empty() ? "default" : chosen;
  const fs::path secrets = file_of("AWS_SHARED_CREDENTIALS_FILE", "credentials");
  const fs::path config = file_of("AWS_CONFIG_FILE", "config");
  bool found = false;
  const Profile stored = read_section(secrets, name, found);
  const Profile options = read_section(config, name == "default" ? name : "profile " + name, found);

  if (has_variables())
    settings.credentials = {variable({"AWS_ACCESS_KEY_ID"}), variable({"AWS_SECRET_ACCESS_KEY"}),
                            variable({"AWS_SESSION_TOKEN"}), "AWS_ACCESS_KEY_ID"};
  else if (stored.contains("aws_access_key_id"))
    settings.credentials = credentials_of(stored, fmt::format("{}, profile {}", secrets.string(), name));
  else if (options.contains("aws_access_key_id"))
    settings.credentials = credentials_of(options, fmt::format("{}, profile {}", config.string(), name));
  else {
    QUENCH_CHECK_AS(ErrorCode::bad_config, chosen.empty() || found,
                    "AWS_PROFILE is {}, but neither {} nor {} has a profile of this name", chosen, secrets.string(),
                    config.string());
    for (const std::string_view key : {"credential_process", "sso_session", "sso_start_url", "role_arn"})
      QUENCH_CHECK_AS(ErrorCode::bad_config, !options.contains(key) && !stored.contains(key),
                      "the profile {} gets its access key by {}, which Quench does not run; export it: "
                      "`eval \"$(aws configure export-credentials --profile {} --format env)\"`",
                      name, key, name);
    QUENCH_FAIL(ErrorCode::bad_config, "there is no access key of S3 storage; {}", kWays);
  }

  settings.region = variable({"AWS_REGION", "AWS_DEFAULT_REGION"});
  if (settings.region.empty()) settings.region = value_of(options, "region");
  if (settings.region.empty()) settings.region = S3Settings().region;
  const auto plain = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_'; };
  QUENCH_CHECK_AS(ErrorCode::bad_config, std::ranges::all_of(settings.region, plain),
                  "AWS_REGION cannot name a region; expected one like us-east-1");

  for (const char* key : {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"})
    if (const std::string url = variable({key}); !url.empty() && settings.endpoint.empty())
      settings.endpoint = require_endpoint(url, key);
  if (const std::string url = value_of(options, "endpoint_url"); !url.empty() && settings.endpoint.empty())
    settings.endpoint = require_endpoint(url, fmt::format("endpoint_url of the profile {}", name));
  settings.http.endpoint = settings.endpoint.empty() ? "https://s3.amazonaws.com" : settings.endpoint;
  return settings;
}

std::string S3Settings::bucket_url(std::string_view bucket) const {
  if (!endpoint.empty()) return fmt::format("{}/{}", endpoint, bucket);
  const std::string_view domain = region.starts_with("cn-") ? "amazonaws.com.cn" : "amazonaws.com";
  if (bucket.find('.') != std::string_view::npos) return fmt::format("https://s3.{}.{}/{}", region, domain, bucket);
  return fmt::format("https://{}.s3.{}.{}", bucket, region, domain);
}

}  // namespace quench::s3
