#include "data/hub/http_client.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <exception>
#include <mutex>

#include "core/system/file.h"
#include "core/system/log.h"
#include "core/system/version.h"

namespace quench::hub {
namespace {

constexpr std::size_t kMaxBody = std::size_t{64} << 20;
constexpr std::size_t kMaxHeaders = std::size_t{1} << 20;  // bytes of one answer
constexpr long kConnectSeconds = 20, kMaxRedirects = 10;

void initialize_curl() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

bool is_transient_status(int status) {
  return status == 408 || status == 429 || (status >= 500 && status != 501 && status != 505);
}

// Seconds of a Retry-After header; dates are left to the usual pauses.
std::optional<double> retry_seconds(const HttpResponse& response) {
  const std::string_view text = response.header("retry-after");
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || !(seconds >= 0)) return std::nullopt;
  return seconds;
}

bool is_tls_failure(CURLcode code) {
  switch (code) {
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_INVALIDCERTSTATUS: return true;
    default: return false;
  }
}

bool is_broken_connection(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM: return true;
    default: return false;
  }
}

template <class T>
void set_option(void* curl, CURLoption option, T value) {
  const CURLcode code = curl_easy_setopt(curl, option, value);
  QUENCH_CHECK_AS(ErrorCode::failed, code == CURLE_OK, "libcurl: option {}: {}", static_cast<int>(option),
                  curl_easy_strerror(code));
}

std::string escaped(std::string_view text, std::string_view kept) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = std::isalnum(byte) != 0 || c == '-' || c == '_' || c == '.' || c == '~';
    if (plain || kept.find(c) != std::string_view::npos)
      result += c;
    else
      result += fmt::format("%{:02X}", byte);
  }
  return result;
}

}  // namespace

std::string_view HttpResponse::header(std::string_view name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

std::string shown_url(std::string_view url) {
  return std::string(url.substr(0, url.find_first_of("?#")));
}

std::string escape_path(std::string_view path) {
  return escaped(path, "/");
}

std::string escape_segment(std::string_view text) {
  return escaped(text, "");
}

// State of one attempt, for curl's callbacks. Exceptions do not cross curl: they are kept and thrown afterwards.
struct HttpClient::Transfer {
  const HttpRequest& request;
  const StopPoll& stop;
  HttpResponse response{};
  std::exception_ptr failure{};
  int stopped = 0;
  bool begun = false;
  std::size_t header_bytes = 0;
  int file = -1;
  std::uint64_t file_sent = 0;
  curl_slist* headers = nullptr;

  ~Transfer() {
    curl_slist_free_all(headers);
    if (file >= 0) ::close(file);
  }

  template <class F>
  bool guarded(F&& call) noexcept {
    try {
      call();
      return true;
    } catch (...) {
      failure = std::current_exception();
      return false;
    }
  }

  void take_header(std::string_view line) {
    header_bytes += line.size();
    QUENCH_CHECK_AS(ErrorCode::io, header_bytes <= kMaxHeaders, "{}: the answer's headers exceed {} bytes",
                    shown_url(request.url), kMaxHeaders);
    while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.remove_suffix(1);
    if (line.starts_with("HTTP/")) {  // status line of a further answer, after a redirect
      response.headers.clear();
      const std::size_t blank = line.find(' ');
      response.status = 0;
      if (blank != std::string_view::npos)
        std::from_chars(line.data() + blank + 1, line.data() + line.size(), response.status);
      return;
    }
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return;
    std::string name(line.substr(0, colon));
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    std::string_view value = line.substr(colon + 1);
    while (value.starts_with(' ') || value.starts_with('\t')) value.remove_prefix(1);
    response.headers[name] = value;
  }

  void take_body(std::string_view bytes) {
    if (request.sink && response.is_success()) {
      if (!begun && request.begin) request.begin(response);
      begun = true;
      request.sink(std::as_bytes(std::span(bytes.data(), bytes.size())));
      return;
    }
    QUENCH_CHECK_AS(ErrorCode::io, response.body.size() + bytes.size() <= kMaxBody, "{}: the answer exceeds {} bytes",
                    shown_url(request.url), kMaxBody);
    response.body += bytes;
  }

  std::size_t give_file(std::span<char> buffer) {
    const std::uint64_t left = request.file->bytes - std::min(file_sent, request.file->bytes);
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(left, buffer.size()));
    if (count == 0) return 0;
    const ssize_t got = ::pread(file, buffer.data(), count, static_cast<off_t>(request.file->offset + file_sent));
    QUENCH_CHECK_AS(ErrorCode::io, got > 0, "{}: {}", request.file->path.string(),
                    got == 0 ? "the file became shorter while it was sent" : errno_text(errno));
    file_sent += static_cast<std::uint64_t>(got);
    if (request.sent) request.sent(file_sent);
    return static_cast<std::size_t>(got);
  }
};

HttpClient::HttpClient(const HubSettings& settings, StopPoll stop) : settings_(settings), stop_(std::move(stop)) {
  initialize_curl();
  curl_ = curl_easy_init();
  QUENCH_CHECK_AS(ErrorCode::failed, curl_ != nullptr, "libcurl could not be initialized");
}

HttpClient::~HttpClient() {
  curl_easy_cleanup(curl_);
}

void HttpClient::prepare(Transfer& transfer) {
  const HttpRequest& request = transfer.request;
  curl_easy_reset(curl_);  // keeps connections
  const auto set = [&](CURLoption option, auto value) { set_option(curl_, option, value); };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_USERAGENT, "quench/" QUENCH_VERSION);
  set(CURLOPT_FOLLOWLOCATION, request.signing == nullptr ? 1L : 0L);
  set(CURLOPT_MAXREDIRS, kMaxRedirects);
  set(CURLOPT_POSTREDIR, static_cast<long>(CURL_REDIR_POST_ALL));
  const bool tls = settings_.endpoint.starts_with("https://");  // no redirect leads from TLS to plain text
#if LIBCURL_VERSION_NUM >= 0x075500
  set(CURLOPT_PROTOCOLS_STR, tls ? "https" : "http,https");
  set(CURLOPT_REDIR_PROTOCOLS_STR, tls ? "https" : "http,https");
#else
  set(CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTPS | (tls ? 0 : CURLPROTO_HTTP)));
  set(CURLOPT_REDIR_PROTOCOLS, static_cast<long>(CURLPROTO_HTTPS | (tls ? 0 : CURLPROTO_HTTP)));
#endif
  set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, settings_.idle_seconds);
  if (!settings_.certificates.empty()) set(CURLOPT_CAINFO, settings_.certificates.c_str());
  if (!request.sink && request.method != "HEAD") set(CURLOPT_ACCEPT_ENCODING, "");

  const auto add = [&](const std::string& line) {
    transfer.headers = curl_slist_append(transfer.headers, line.c_str());
  };
  for (const std::string& line : request.headers) add(line);
  if (request.signing == nullptr)
    add("Expect:");
  else
    set_signing(*request.signing);
  const bool own = request.url.starts_with(settings_.endpoint + "/");
  if (own && !settings_.token.empty() && settings_.may_send_token()) add(settings_.token.header());
  set(CURLOPT_HTTPHEADER, transfer.headers);
  set_body(transfer);
  set_callbacks(transfer);
}

void HttpClient::set_signing(const AwsSigning& signing) {
#if LIBCURL_VERSION_NUM >= 0x075700
  set_option(curl_, CURLOPT_AWS_SIGV4, signing.scope.c_str());
  set_option(curl_, CURLOPT_USERNAME, signing.key_id.c_str());
  set_option(curl_, CURLOPT_PASSWORD, signing.secret.c_str());
#else
  QUENCH_FAIL(ErrorCode::unsupported,
              "this build's libcurl {} cannot sign requests of {}; build with libcurl 7.87 or "
              "newer",
              LIBCURL_VERSION, signing.scope);
#endif
}

void HttpClient::set_body(Transfer& transfer) {
  const HttpRequest& request = transfer.request;
  const auto set = [&](CURLoption option, auto value) { set_option(curl_, option, value); };
  if (request.file) {
    transfer.file = ::open(request.file->path.c_str(), O_RDONLY | O_CLOEXEC);
    QUENCH_CHECK_AS(ErrorCode::io, transfer.file >= 0, "{}: {}", request.file->path.string(), errno_text(errno));
    set(CURLOPT_UPLOAD, 1L);
    set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.file->bytes));
    set(CURLOPT_READDATA, &transfer);
    set(
        CURLOPT_READFUNCTION, +[](char* to, std::size_t size, std::size_t count, void* data) -> std::size_t {
          auto& state = *static_cast<Transfer*>(data);
          std::size_t given = CURL_READFUNC_ABORT;
          state.guarded([&] { given = state.give_file({to, size * count}); });
          return given;
        });
    set(CURLOPT_SEEKDATA, &transfer);
    set(
        CURLOPT_SEEKFUNCTION, +[](void* data, curl_off_t offset, int origin) {
          if (origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
          static_cast<Transfer*>(data)->file_sent = static_cast<std::uint64_t>(offset);
          return CURL_SEEKFUNC_OK;
        });
  } else if (request.method == "HEAD") {
    set(CURLOPT_NOBODY, 1L);
  } else if (request.method != "GET") {
    set(CURLOPT_POST, 1L);
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    set(CURLOPT_POSTFIELDS, request.body.c_str());
  }
  if (request.method != "GET" && request.method != "HEAD") set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
}

void HttpClient::set_callbacks(Transfer& transfer) {
  const auto set = [&](CURLoption option, auto value) { set_option(curl_, option, value); };
  set(CURLOPT_HEADERDATA, &transfer);
  set(
      CURLOPT_HEADERFUNCTION, +[](char* text, std::size_t size, std::size_t count, void* data) -> std::size_t {
        auto& state = *static_cast<Transfer*>(data);
        return state.guarded([&] { state.take_header({text, size * count}); }) ? size * count : 0;
      });
  set(CURLOPT_WRITEDATA, &transfer);
  set(
      CURLOPT_WRITEFUNCTION, +[](char* text, std::size_t size, std::size_t count, void* data) -> std::size_t {
        auto& state = *static_cast<Transfer*>(data);
        return state.guarded([&] { state.take_body({text, size * count}); }) ? size * count : 0;
      });
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFODATA, &transfer);
  set(
      CURLOPT_XFERINFOFUNCTION, +[](void* data, curl_off_t, curl_off_t, curl_off_t, curl_off_t) -> int {
        auto& state = *static_cast<Transfer*>(data);
        if (state.stop) state.guarded([&] { state.stopped = state.stop(); });
        return state.stopped != 0 || state.failure ? 1 : 0;
      });
}

HttpResponse HttpClient::send_once(const HttpRequest& request) {
  Transfer transfer{.request = request, .stop = stop_};
  prepare(transfer);
  const CURLcode code = curl_easy_perform(curl_);
  // Curl keeps pointers into `transfer` until the next request.
  curl_easy_setopt(curl_, CURLOPT_HTTPHEADER, nullptr);
  const std::string what = fmt::format("{} {}", request.method, shown_url(request.url));
  if (transfer.failure) std::rethrow_exception(transfer.failure);
  if (transfer.stopped != 0) throw Stopped(transfer.stopped);
  if (code != CURLE_OK) {
    const char* text = curl_easy_strerror(code);
    QUENCH_LOG_DEBUG("http: {}: {}", what, text);
    QUENCH_CHECK_AS(
        ErrorCode::io, !is_tls_failure(code),
        "{}: no trusted TLS connection: {}; name the certificates of your network in SSL_CERT_FILE, or check "
        "the clock of this machine",
        what, text);
    const bool unreachable =
        code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY;
    if (is_broken_connection(code))
      throw TransientError(
          fmt::format("{}: {}{}", what, text,
                      unreachable ? "; check the network, the proxy (https_proxy) and " + settings_.endpoint_key : ""),
          std::nullopt, unreachable);
    QUENCH_FAIL(ErrorCode::io, "{}: {}", what, text);
  }
  has_answer_ = true;
  HttpResponse& response = transfer.response;
  QUENCH_LOG_DEBUG("http: {}: {}", what, response.status);
  if (is_transient_status(response.status))
    throw TransientError(fmt::format("{}: the server answered with status {}{}", what, response.status,
                                     response.status == 429 ? " (too many requests)" : ""),
                         retry_seconds(response), false);
  return std::move(response);
}

HttpResponse HttpClient::send(const HttpRequest& request) {
  for (Retries retries(settings_, stop_);;) {
    try {
      return send_once(request);
    } catch (const TransientError& failure) {
      if (failure.is_unreachable() && !has_answer_) throw;
      retries.wait(failure);
    }
  }
}

}  // namespace quench::hub
