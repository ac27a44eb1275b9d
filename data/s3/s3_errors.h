#pragma once
// Error answers of S3 storage: what may be repeated, and what a user is told.

#include <string>
#include <string_view>

#include "data/hub/http_client.h"
#include "data/s3/s3_settings.h"

namespace quench::s3 {

// The code of an error answer, "" without one; answers to HEAD have none.
[[nodiscard]] std::string error_code_of(const hub::HttpResponse& response);

// Region that the bucket is in, where the answer says so; empty: it does not.
[[nodiscard]] std::string region_of(const hub::HttpResponse& response);

// Throws TransientError for a busy storage, else Error (s3_client.h). `what`: "PUT s3://bucket/name".
[[noreturn]] void fail_request(const S3Settings& settings, std::string_view what, const hub::HttpResponse& response);

}  // namespace quench::s3
