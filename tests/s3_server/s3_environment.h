#pragma once
// Variables of the AWS command line, all unset at first and as before afterwards; no file of the person who runs the
// tests is read.

#include <array>
#include <cstdlib>
#include <optional>
#include <string>

#include "tests/s3_server/s3_server.h"

namespace quench::testing {

class S3Environment {
 public:
  S3Environment() {
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      if (const char* value = std::getenv(kNames[i])) before_[i] = value;
      unsetenv(kNames[i]);
    }
    set("AWS_SHARED_CREDENTIALS_FILE", "/nowhere/credentials");
    set("AWS_CONFIG_FILE", "/nowhere/config");
  }
  // Access to the server.
  explicit S3Environment(const S3Server& server) : S3Environment() {
    set("AWS_ACCESS_KEY_ID", S3Server::kKeyId);
    set("AWS_SECRET_ACCESS_KEY", S3Server::kSecret);
    set("AWS_ENDPOINT_URL_S3", server.endpoint());
  }
  ~S3Environment() {
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      if (before_[i])
        setenv(kNames[i], before_[i]->c_str(), 1);
      else
        unsetenv(kNames[i]);
    }
  }
  S3Environment(const S3Environment&) = delete;
  S3Environment& operator=(const S3Environment&) = delete;

  void set(const char* name, const std::string& value) const { setenv(name, value.c_str(), 1); }
  void unset(const char* name) const { unsetenv(name); }

 private:
  static constexpr std::array kNames = {"AWS_ACCESS_KEY_ID",
                                        "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN",
                                        "AWS_PROFILE",
                                        "AWS_DEFAULT_PROFILE",
                                        "AWS_SHARED_CREDENTIALS_FILE",
                                        "AWS_CONFIG_FILE",
                                        "AWS_REGION",
                                        "AWS_DEFAULT_REGION",
                                        "AWS_ENDPOINT_URL_S3",
                                        "AWS_ENDPOINT_URL",
                                        "AWS_CA_BUNDLE",
                                        "http_proxy",
                                        "all_proxy",
                                        "ALL_PROXY"};
  std::array<std::optional<std::string>, kNames.size()> before_;
};

}  // namespace quench::testing
