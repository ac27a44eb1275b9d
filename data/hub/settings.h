#pragma once
// Settings of the Hugging Face Hub from the environment, by the variables of huggingface_hub; and the access token.

#include <filesystem>
#include <string>
#include <string_view>

namespace quench::hub {

// Access token. It is no formattable type: logs and messages cannot hold it, and redact() removes it from texts of a
// server.
class Token {
 public:
  Token() = default;
  // Surrounding blanks are dropped. Throws bad_config for other blanks and control characters; `source`: for the
  // message.
  Token(std::string_view text, std::string_view source);

  [[nodiscard]] bool empty() const noexcept { return text_.empty(); }
  // "HF_TOKEN" or the file, for messages; empty without a token.
  [[nodiscard]] const std::string& source() const noexcept { return source_; }
  // "Authorization: Bearer ..."
  [[nodiscard]] std::string header() const;
  [[nodiscard]] std::string redact(std::string text) const;

 private:
  std::string text_, source_;
};

struct HubSettings {
  std::string endpoint = "https://huggingface.co";  // HF_ENDPOINT, without a trailing slash
  std::string endpoint_key = "HF_ENDPOINT";         // where it is set, for messages
  std::filesystem::path cache{};                    // HF_HUB_CACHE, $HF_HOME/hub, ~/.cache/huggingface/hub
  Token token{};                                    // HF_TOKEN, HF_TOKEN_PATH, $HF_HOME/token
  std::filesystem::path token_file{};               // where a token would be stored, for messages
  // REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE, SSL_CERT_FILE, or of the system; empty: libcurl's.
  std::string certificates{};
  bool offline = false;            // HF_HUB_OFFLINE
  double first_retry_seconds = 1;  // doubled with each further one
  int retries = 6;                 // repetitions of a request without any progress
  long idle_seconds = 60;          // a transfer that stands still for so long is broken

  // Throws bad_config for an endpoint that is no URL, io for an unreadable token file. Without `with_token` no token is
  // read.
  [[nodiscard]] static HubSettings from_environment(bool with_token = true);
  // The token is sent with TLS, and without it to this machine alone.
  [[nodiscard]] bool may_send_token() const;
};

// Cache folder alone; empty without a home folder.
[[nodiscard]] std::filesystem::path cache_folder();

}  // namespace quench::hub
