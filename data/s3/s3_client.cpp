#include "data/s3/s3_client.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <exception>
#include <mutex>
#include <thread>

#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "data/s3/s3_errors.h"
#include "data/s3/s3_request.h"
#include "data/s3/s3_xml.h"

namespace quench::s3 {
namespace {

constexpr std::string_view kMetadataPrefix = "x-amz-meta-";
constexpr std::string_view kDigestKey = "quench-sha256", kPartBytesKey = "quench-part-bytes";

std::uint64_t number_of(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty() ? value : UINT64_MAX;
}

S3ObjectInfo info_of(const hub::HttpResponse& response) {
  S3ObjectInfo info{.bytes = number_of(response.header("content-length")), .metadata = {}};
  for (const auto& [name, value] : response.headers)
    if (name.starts_with(kMetadataPrefix)) info.metadata[name.substr(kMetadataPrefix.size())] = value;
  return info;
}

}  // namespace

std::vector<std::string> metadata_headers(const Metadata& metadata, const StoredDigest& digest) {
  std::vector<std::string> headers{"Content-Type: application/octet-stream",
                                   fmt::format("{}{}: {}", kMetadataPrefix, kDigestKey, digest.sha256),
                                   fmt::format("{}{}: {}", kMetadataPrefix, kPartBytesKey, digest.part_bytes)};
  for (const auto& [name, value] : metadata) headers.push_back(fmt::format("{}{}: {}", kMetadataPrefix, name, value));
  return headers;
}

std::optional<StoredDigest> S3ObjectInfo::digest() const {
  const auto sha256 = metadata.find(kDigestKey), part_bytes = metadata.find(kPartBytesKey);
  if (sha256 == metadata.end() || part_bytes == metadata.end()) return std::nullopt;
  return StoredDigest{sha256->second, number_of(part_bytes->second)};
}

S3Client::S3Client(S3Settings settings, S3Url place, hub::StopPoll stop)
    : settings_(std::move(settings)), place_(std::move(place)), http_(settings_.http, std::move(stop)) {
  signing_ = {.scope = fmt::format("aws:amz:{}:s3", settings_.region),
              .key_id = settings_.credentials.key_id(),
              .secret = settings_.credentials.secret()};
}

bool S3Client::follow_region(const hub::HttpResponse& response) {
  const std::string region = region_of(response);
  if (region.empty() || region == settings_.region) return false;
  QUENCH_LOG_DEBUG("{}: its region is {}, not {}", place_.text(), region, settings_.region);
  settings_.region = region;
  signing_.scope = fmt::format("aws:amz:{}:s3", region);
  return true;
}

void S3Client::judge(const Request& request, const hub::HttpResponse& response) const {
  const bool is_allowed = std::ranges::find(request.allowed, response.status) != request.allowed.end();
  // A body of success may tell of a failure.
  const bool failed = request.method == "POST" && response.is_success() && !error_code_of(response).empty();
  if ((response.is_success() && !failed) || is_allowed) return;
  fail_request(settings_, fmt::format("{} {}", request.method, place_.text(request.name)), response);
}

hub::HttpResponse S3Client::attempt(const Request& request) {
  for (bool again = true;; again = false) {
    hub::HttpRequest http = request.http;
    http.method = request.method;
    http.url = settings_.bucket_url(place_.bucket);
    // Some servers know the bucket alone without a slash.
    if (!request.is_of_bucket) http.url += "/" + hub::escape_path(place_.key(request.name));
    if (!request.query.empty()) http.url += "?" + request.query;
    http.headers.push_back("x-amz-content-sha256: " + request.hash);
    if (const std::string& session = settings_.credentials.session(); !session.empty())
      http.headers.push_back("x-amz-security-token: " + session);
    http.signing = &signing_;
    hub::HttpResponse response = http_.send_once(http);
    if (again && !response.is_success() && follow_region(response)) continue;
    judge(request, response);
    return response;
  }
}

hub::HttpResponse S3Client::send_request(const Request& request) {
  for (hub::Retries retries(settings_.http, http_.stop());;) {
    try {
      return attempt(request);
    } catch (const hub::TransientError& failure) {
      if (failure.is_unreachable() && !http_.has_answer()) throw;
      retries.wait(failure);
    }
  }
}

std::vector<S3Object> S3Client::list(std::string_view start) {
  std::vector<S3Object> objects;
  const std::string prefix = place_.key(start);
  const std::string base = place_.key("");
  for (std::string token;;) {
    const std::string query =
        fmt::format("{}list-type=2&prefix={}",
                    token.empty() ? "" : fmt::format("continuation-token={}&", hub::escape_segment(token)),
                    hub::escape_segment(prefix));
    const hub::HttpResponse page =
        send_request({.method = "GET", .name = std::string(start), .query = query, .is_of_bucket = true});
    QUENCH_CHECK_AS(ErrorCode::corrupt, page.body.find("<ListBucketResult") != std::string::npos,
                    "{}: the answer is no list of objects; is the endpoint one of S3 storage?", place_.text());
    xml_each(page.body, "Contents", [&](std::string_view entry) {
      const std::string key = xml_text(entry, "Key");
      if (!key.starts_with(base)) return;
      objects.push_back({key.substr(base.size()), number_of(xml_text(entry, "Size"))});
    });
    token = xml_text(page.body, "NextContinuationToken");
    if (token.empty() || xml_text(page.body, "IsTruncated") != "true") return objects;
  }
}

std::optional<S3ObjectInfo> S3Client::find(std::string_view name) {
  const hub::HttpResponse response =
      send_request({.method = "HEAD", .name = std::string(name), .allowed = {400, 403, 404}});
  if (response.status == 404) return std::nullopt;
  if (!response.is_success()) {  // the reason is in the body of an answer to GET
    Request reason{.method = "GET", .name = std::string(name)};
    reason.http.headers = {"Range: bytes=0-0"};
    (void)send_request(reason);
    QUENCH_FAIL(ErrorCode::io, "HEAD {}: the storage answered with status {}", place_.text(name), response.status);
  }
  S3ObjectInfo info = info_of(response);
  QUENCH_CHECK_AS(ErrorCode::corrupt, info.bytes != UINT64_MAX, "HEAD {}: the answer has no size", place_.text(name));
  return info;
}

std::string S3Client::read(std::string_view name, std::uint64_t max_bytes) {
  std::string text;
  Request request{.method = "GET", .name = std::string(name)};
  request.http.begin = [&](const hub::HttpResponse&) { text.clear(); };  // another attempt
  request.http.sink = [&](std::span<const std::byte> bytes) {
    QUENCH_CHECK_AS(ErrorCode::corrupt, text.size() + bytes.size() <= max_bytes, "{}: larger than {} bytes",
                    place_.text(name), max_bytes);
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  (void)send_request(request);
  return text;
}

void S3Client::write(std::string_view name, const std::string& text, const Metadata& metadata) {
  const FileDigest digest{text.size(), std::max<std::uint64_t>(text.size(), 1), {sha256_of(text)}};
  Request request{.method = "PUT", .name = std::string(name), .hash = digest.parts.front()};
  request.http.headers = metadata_headers(metadata, digest.stored());
  request.http.body = text;
  (void)send_request(request);
}

void S3Client::remove(std::string_view name) {
  (void)send_request({.method = "DELETE", .name = std::string(name), .allowed = {404}});
}

void S3Client::in_parallel(std::size_t count, const std::function<void(S3Client&, std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> failed = false;
  std::exception_ptr failure;
  std::mutex mutex;
  const hub::StopPoll stop = http_.stop();
  const auto run = [&] {
    try {
      S3Client client(settings_, place_, [&] { return failed ? 1 : stop ? stop() : 0; });
      for (std::size_t i = next++; i < count && !failed; i = next++) work(client, i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      failed = true;
    }
  };
  std::vector<std::thread> threads;
  const std::size_t workers = std::min<std::size_t>(static_cast<std::size_t>(std::max(settings_.workers, 1)), count);
  try {
    for (std::size_t i = 1; i < workers; ++i) threads.emplace_back(run);
  } catch (const std::system_error& error) {
    QUENCH_LOG_DEBUG("{}: {} connections, no thread for more: {}", place_.text(), threads.size() + 1, error.what());
  }
  run();
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace quench::s3
