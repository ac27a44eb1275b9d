#pragma once
// One operation of an S3Client, and the headers of metadata.

#include <initializer_list>
#include <string>
#include <vector>

#include "data/s3/s3_client.h"

namespace quench::s3 {

// SHA-256 of nothing.
inline constexpr const char* kEmptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

// On an object, or on the bucket.
struct S3Client::Request {
  std::string method;
  std::string name;               // on the bucket: for messages
  std::string query{};            // sorted, escaped
  std::string hash = kEmptyHash;  // SHA-256 of body or file
  hub::HttpRequest http{};        // body or file, headers, sink
  std::vector<int> allowed{};     // statuses that are no error
  bool is_of_bucket = false;
};

// As lines, with the digest and the type of the content.
[[nodiscard]] std::vector<std::string> metadata_headers(const Metadata& metadata, const StoredDigest& digest);

}  // namespace quench::s3
