#pragma once
// Access to S3-compatible storage: credentials, region and endpoint, by the variables and files of the AWS command
// line.

#include <cstdint>
#include <string>
#include <string_view>

#include "data/hub/settings.h"

namespace quench::s3 {

// Access key. It is no formattable type: logs and messages cannot hold it, and redact() removes it from texts of a
// server.
class S3Credentials {
 public:
  S3Credentials() = default;
  // Throws bad_config for an empty or malformed part. `session`: of temporary credentials, or empty. `source`: for
  // messages.
  S3Credentials(std::string key_id, std::string secret, std::string session, std::string source);

  [[nodiscard]] const std::string& key_id() const noexcept { return key_id_; }
  [[nodiscard]] const std::string& secret() const noexcept { return secret_; }
  [[nodiscard]] const std::string& session() const noexcept { return session_; }
  // "AWS_ACCESS_KEY_ID", or file and profile.
  [[nodiscard]] const std::string& source() const noexcept { return source_; }
  [[nodiscard]] std::string redact(std::string text) const;

 private:
  std::string key_id_, secret_, session_, source_;
};

// Where the storage is, and how it is asked.
struct S3Settings {
  S3Credentials credentials{};
  std::string region = "us-east-1";
  std::string endpoint{};                              // without a trailing slash; empty: Amazon's
  hub::HubSettings http{};                             // certificates, pauses and idle time of the connections
  std::uint64_t part_bytes = std::uint64_t{64} << 20;  // size of parts; larger files are sent and fetched in several
  int workers = 4;                                     // parts at a time

  // Credentials: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; else the profile of AWS_PROFILE
  // ("default") in AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials), then in AWS_CONFIG_FILE (~/.aws/config). Region:
  // AWS_REGION, AWS_DEFAULT_REGION, the profile. Endpoint: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile.
  // Certificates: AWS_CA_BUNDLE, else as for the hub. Throws bad_config: none there, an unknown profile, one that needs
  // another program (SSO, a role), or an endpoint that is no URL; io for unreadable files.
  [[nodiscard]] static S3Settings from_environment();

  // "https://BUCKET.s3.REGION.amazonaws.com", or "ENDPOINT/BUCKET"; of a bucket with dots, which a TLS certificate
  // does not cover as a host, "https://s3.REGION.amazonaws.com/BUCKET".
  [[nodiscard]] std::string bucket_url(std::string_view bucket) const;
};

}  // namespace quench::s3
