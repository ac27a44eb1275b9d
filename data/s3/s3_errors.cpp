#include "data/s3/s3_errors.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "core/system/check.h"
#include "core/system/printable.h"
#include "data/s3/s3_xml.h"

namespace quench::s3 {
namespace {

// Repeated, whatever the status.
constexpr std::array<std::string_view, 7> kTransient{
    "RequestTimeout",     "InternalError",           "SlowDown",           "OperationAborted",
    "ServiceUnavailable", "RequestTimeoutException", "ThrottlingException"};

struct Reason {
  std::string_view code;
  ErrorCode error;
  std::string_view text;
};

constexpr std::string_view kDenied =
    "access denied; the access key needs s3:ListBucket, s3:GetObject, s3:PutObject, s3:DeleteObject and "
    "s3:AbortMultipartUpload there";
constexpr std::string_view kElsewhere =
    "the bucket is in another region or at another endpoint; set AWS_REGION or AWS_ENDPOINT_URL_S3";
constexpr std::string_view kExpired = "the temporary access key has expired or is not valid; renew it";
constexpr std::string_view kNoBucket = "there is no such bucket; make it, or correct its name, region and endpoint";

constexpr std::array<Reason, 14> kReasons{{
    {"NoSuchBucket", ErrorCode::bad_config, kNoBucket},
    {"AccessDenied", ErrorCode::bad_config, kDenied},
    {"AllAccessDisabled", ErrorCode::bad_config, kDenied},
    {"InvalidAccessKeyId", ErrorCode::bad_config, "the storage does not know the access key"},
    {"SignatureDoesNotMatch", ErrorCode::bad_config,
     "the signature does not match: the secret of the access key is another, or a proxy changes requests"},
    {"ExpiredToken", ErrorCode::bad_config, kExpired},
    {"ExpiredTokenException", ErrorCode::bad_config, kExpired},
    {"InvalidToken", ErrorCode::bad_config, kExpired},
    {"TokenRefreshRequired", ErrorCode::bad_config, kExpired},
    {"RequestTimeTooSkewed", ErrorCode::bad_config, "the clock of this machine differs from that of the storage"},
    {"PermanentRedirect", ErrorCode::bad_config, kElsewhere},
    {"AuthorizationHeaderMalformed", ErrorCode::bad_config, kElsewhere},
    {"NoSuchKey", ErrorCode::not_found, "there is no such object"},
    {"XAmzContentSHA256Mismatch", ErrorCode::corrupt, "what arrived has another SHA-256 than what was sent"},
}};

// By status, where the answer has no code.
constexpr std::array<std::pair<int, std::string_view>, 6> kCodesOfStatuses{{{301, "PermanentRedirect"},
                                                                            {307, "PermanentRedirect"},
                                                                            {401, "AccessDenied"},
                                                                            {403, "AccessDenied"},
                                                                            {404, "NoSuchKey"},
                                                                            {503, "SlowDown"}}};

std::string shown(const S3Settings& settings, const std::string& text) {
  constexpr std::size_t kMost = 300;
  return printable(settings.credentials.redact(text).substr(0, kMost));
}

}  // namespace

std::string error_code_of(const hub::HttpResponse& response) {
  return xml_text(response.body, "Code");
}

std::string region_of(const hub::HttpResponse& response) {
  std::string region(response.header("x-amz-bucket-region"));
  if (region.empty()) region = xml_text(response.body, "Region");
  const auto plain = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-'; };
  return region.size() <= 64 && std::ranges::all_of(region, plain) ? region : std::string();
}

void fail_request(const S3Settings& settings, std::string_view what, const hub::HttpResponse& response) {
  const std::string told = error_code_of(response);
  const std::string message = shown(settings, xml_text(response.body, "Message"));
  std::string answer = fmt::format("status {}", response.status);
  if (!told.empty()) answer += fmt::format(", {}", shown(settings, told));
  if (!message.empty()) answer += fmt::format(": {}", message);
  if (std::ranges::find(kTransient, told) != kTransient.end())
    throw hub::TransientError(fmt::format("{}: the storage is busy ({})", what, answer), std::nullopt, false);

  std::string_view code = told;
  for (const auto& [status, name] : kCodesOfStatuses)
    if (code.empty() && response.status == status) code = name;
  const auto reason = std::ranges::find(kReasons, code, &Reason::code);
  if (reason == kReasons.end()) QUENCH_FAIL(ErrorCode::io, "{}: the storage answered with {}", what, answer);
  const std::string where = settings.endpoint.empty() ? fmt::format("region {}", settings.region) : settings.endpoint;
  throw Error(reason->error, fmt::format("{}: {} ({}; access key of {}, {})", what, reason->text, answer,
                                         settings.credentials.source(), where));
}

}  // namespace quench::s3
