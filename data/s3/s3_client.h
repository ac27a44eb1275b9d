#pragma once
// Client of S3-compatible storage: objects below one address. Requests are signed (signature version 4) with the
// SHA-256 of their body, which the storage compares with what arrives; broken connections, statuses 429 and 5xx and the
// codes of a busy storage are repeated as HttpClient says, and a bucket of another region is asked there.
//
// Errors are one line with address, reason and remedy: bad_config for credentials, permission, clock, region and absent
// buckets, not_found for absent objects, corrupt for other contents, io for the rest; hub::Stopped.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/hub/http_client.h"
#include "data/s3/file_digest.h"
#include "data/s3/s3_settings.h"
#include "data/s3/s3_url.h"

namespace quench::s3 {

// By lower-case names, without "x-amz-meta-".
using Metadata = std::map<std::string, std::string, std::less<>>;

// Entry of a list.
struct S3Object {
  std::string name;  // relative to the client's address
  std::uint64_t bytes = 0;
};

// Size and metadata of an object.
struct S3ObjectInfo {
  std::uint64_t bytes = 0;
  Metadata metadata;

  // Digest of an object of send(); nullopt: sent by another program.
  [[nodiscard]] std::optional<StoredDigest> digest() const;
};

// For one thread. Names are relative to the address, without a leading slash.
class S3Client {
 public:
  S3Client(S3Settings settings, S3Url place, hub::StopPoll stop);

  [[nodiscard]] const S3Url& place() const noexcept { return place_; }

  // Objects whose name begins with `start`, by name.
  [[nodiscard]] std::vector<S3Object> list(std::string_view start);
  [[nodiscard]] std::optional<S3ObjectInfo> find(std::string_view name);
  // Throws corrupt beyond `max_bytes`.
  [[nodiscard]] std::string read(std::string_view name, std::uint64_t max_bytes);
  // To a new file, in parts. The size is that of `info`, and the digest if it has one, else corrupt.
  void fetch(std::string_view name, const S3ObjectInfo& info, const std::filesystem::path& path);

  void write(std::string_view name, const std::string& text, const Metadata& metadata);
  // File of this digest, whole or in parts (multipart); the object appears when all have arrived, with size, digest and
  // metadata as find() then returns them. Parts of an interrupted call are removed from the storage.
  void send(std::string_view name, const std::filesystem::path& path, const FileDigest& digest,
            const Metadata& metadata);
  // Absent ones are no error.
  void remove(std::string_view name);
  // Parts of uploads that were begun and not completed, of objects whose names begin with `start` and are `old`.
  // Failures are left to the next call.
  void remove_interrupted(std::string_view start, const std::function<bool(std::string_view name)>& is_old);

 private:
  struct Request;
  // One attempt; a bucket of another region once more there. Throws TransientError, and errors of statuses other than
  // 2xx and `allowed`.
  hub::HttpResponse attempt(const Request& request);
  // Repeats transient failures.
  hub::HttpResponse send_request(const Request& request);
  void judge(const Request& request, const hub::HttpResponse& response) const;
  bool follow_region(const hub::HttpResponse& response);

  using PartSink = std::function<void(std::uint64_t offset, std::span<const std::byte> bytes)>;
  // Digest of the part.
  std::string fetch_part(std::string_view name, const FileDigest& layout, std::size_t part, const PartSink& write);
  void send_parts(std::string_view name, const std::filesystem::path& path, const FileDigest& digest,
                  const Metadata& metadata);
  void complete(std::string_view name, const std::string& upload, const std::vector<std::string>& tags);
  void abort(std::string_view name, const std::string& upload);
  // Runs `work` for 0 <= index < count on several clients like this one; throws the first error.
  void in_parallel(std::size_t count, const std::function<void(S3Client&, std::size_t)>& work);

  S3Settings settings_;
  S3Url place_;
  hub::HttpClient http_;
  hub::AwsSigning signing_;
};

}  // namespace quench::s3
