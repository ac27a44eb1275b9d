#pragma once
// HTTP client: one connection over libcurl, kept alive between requests. The token is sent to the endpoint's
// own URLs alone, and not along redirects to other hosts. Proxies: https_proxy and no_proxy, as curl reads them.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/system/check.h"
#include "data/hub/settings.h"

namespace quench::hub {

// Asked often, also while data are transferred; non-zero stops.
using StopPoll = std::function<int()>;

// A stop that was asked for; what has arrived is kept.
class Stopped : public Error {
 public:
  explicit Stopped(int reason) : Error(ErrorCode::failed, "stopped"), reason_(reason) {}
  [[nodiscard]] int reason() const noexcept { return reason_; }

 private:
  int reason_;
};

// Failure that a repetition may cure: a broken connection, statuses 408, 429 and 5xx.
class TransientError : public Error {
 public:
  TransientError(const std::string& message, std::optional<double> retry_after, bool is_unreachable)
      : Error(ErrorCode::io, message), retry_after_(retry_after), is_unreachable_(is_unreachable) {}
  // Seconds that the server asked for.
  [[nodiscard]] std::optional<double> retry_after() const noexcept { return retry_after_; }
  // No connection could be made.
  [[nodiscard]] bool is_unreachable() const noexcept { return is_unreachable_; }

 private:
  std::optional<double> retry_after_;
  bool is_unreachable_;
};

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string, std::less<>> headers;  // names in lower case
  std::string body;                                         // empty where a sink took it

  [[nodiscard]] bool is_success() const noexcept { return status >= 200 && status < 300; }
  // Empty: absent.
  [[nodiscard]] std::string_view header(std::string_view name) const;
};

// Range of a file, as a request's body.
struct FilePart {
  std::filesystem::path path;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// Signature version 4 of Amazon Web Services. The request has the header x-amz-content-sha256, its query is sorted and
// escaped, and redirects, whose signature would be another, are not followed.
struct AwsSigning {
  std::string scope;  // "aws:amz:REGION:SERVICE"
  std::string key_id, secret;
};

struct HttpRequest {
  std::string method = "GET";
  std::string url;
  std::vector<std::string> headers{};  // "Name: value"
  std::string body{};
  std::optional<FilePart> file{};  // in place of body
  const AwsSigning* signing = nullptr;
  // Takes the body of a successful answer. Both may throw; `begin` comes before the first bytes.
  std::function<void(const HttpResponse&)> begin{};
  std::function<void(std::span<const std::byte>)> sink{};
  std::function<void(std::uint64_t)> sent{};  // bytes of `file` that this attempt has sent
};

class HttpClient {
 public:
  // `settings` outlives the client.
  HttpClient(const HubSettings& settings, StopPoll stop);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // One attempt. Statuses that are not transient are returned. Throws TransientError, Stopped, the sink's exceptions,
  // and Error(io) for failures of TLS, too many redirects and answers over 64 MiB.
  [[nodiscard]] HttpResponse send_once(const HttpRequest& request);
  // Repeats transient failures with growing pauses; without any answer so far, an unreachable host fails at once.
  [[nodiscard]] HttpResponse send(const HttpRequest& request);

  [[nodiscard]] const HubSettings& settings() const noexcept { return settings_; }
  [[nodiscard]] const StopPoll& stop() const noexcept { return stop_; }
  // Whether a server has answered.
  [[nodiscard]] bool has_answer() const noexcept { return has_answer_; }

 private:
  struct Transfer;
  void prepare(Transfer& transfer);
  void set_signing(const AwsSigning& signing);
  void set_body(Transfer& transfer);
  void set_callbacks(Transfer& transfer);

  const HubSettings& settings_;
  StopPoll stop_;
  void* curl_;
  bool has_answer_ = false;
};

// Pauses between attempts: doubled each time, at most a minute, or as the server asks, at most five.
class Retries {
 public:
  Retries(const HubSettings& settings, const StopPoll& stop) : settings_(settings), stop_(stop) {}

  // After a failure: waits, or throws it after the last attempt. Throws Stopped.
  void wait(const TransientError& failure);
  // After progress.
  void reset() noexcept { attempts_ = 0; }

 private:
  const HubSettings& settings_;
  const StopPoll& stop_;
  int attempts_ = 0;
};

// Without query and fragment, which may hold signatures: for logs and messages.
[[nodiscard]] std::string shown_url(std::string_view url);
// For a part of a path; "/" stays.
[[nodiscard]] std::string escape_path(std::string_view path);
// For a part without "/".
[[nodiscard]] std::string escape_segment(std::string_view text);

}  // namespace quench::hub
