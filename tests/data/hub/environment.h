#pragma once
// Variables of the Hugging Face Hub, all unset at first and as before afterwards.

#include <array>
#include <cstdlib>
#include <optional>
#include <string>

namespace quench::testing {

class HubEnvironment {
 public:
  HubEnvironment() {
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      if (const char* value = std::getenv(kNames[i])) before_[i] = value;
      unsetenv(kNames[i]);
    }
  }
  ~HubEnvironment() {
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      if (before_[i])
        setenv(kNames[i], before_[i]->c_str(), 1);
      else
        unsetenv(kNames[i]);
    }
  }
  HubEnvironment(const HubEnvironment&) = delete;
  HubEnvironment& operator=(const HubEnvironment&) = delete;

  void set(const char* name, const std::string& value) const { setenv(name, value.c_str(), 1); }

 private:
  // HOME last: no token of the person who runs the tests is read.
  static constexpr std::array kNames = {"HF_TOKEN",
                                        "HUGGING_FACE_HUB_TOKEN",
                                        "HF_TOKEN_PATH",
                                        "HF_HOME",
                                        "HF_HUB_CACHE",
                                        "HUGGINGFACE_HUB_CACHE",
                                        "XDG_CACHE_HOME",
                                        "HF_ENDPOINT",
                                        "HF_HUB_OFFLINE",
                                        "TRANSFORMERS_OFFLINE",
                                        "http_proxy",
                                        "https_proxy",
                                        "HTTPS_PROXY",
                                        "all_proxy",
                                        "ALL_PROXY",
                                        "REQUESTS_CA_BUNDLE",
                                        "CURL_CA_BUNDLE",
                                        "SSL_CERT_FILE",
                                        "HOME"};
  std::array<std::optional<std::string>, kNames.size()> before_;
};

}  // namespace quench::testing
