#include "tests/s3_server/s3_signature.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <sstream>
#include <vector>

namespace quench::testing {
namespace {

std::string hex(const unsigned char* bytes, unsigned size) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (unsigned i = 0; i < size; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

std::string hmac(const std::string& key, const std::string& text) {
  unsigned char value[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
       text.size(), value, &size);
  return {reinterpret_cast<const char*>(value), size};
}

std::vector<std::string> split(const std::string& text, char mark) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, mark);) parts.push_back(part);
  return parts;
}

// Value of NAME=... in the Authorization header.
std::string field(const std::string& header, const std::string& name) {
  const std::size_t at = header.find(name + "=");
  if (at == std::string::npos) return {};
  const std::size_t begin = at + name.size() + 1;
  return header.substr(begin, header.find(',', begin) - begin);
}

std::string canonical_query(const std::string& query) {
  std::vector<std::string> parts = split(query, '&');
  for (std::string& part : parts)
    if (part.find('=') == std::string::npos) part += "=";
  std::ranges::sort(parts);
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : "&") + part;
  return text;
}

}  // namespace

std::string hex_sha256(const std::string& text) {
  unsigned char value[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_Digest(text.data(), text.size(), value, &size, EVP_sha256(), nullptr);
  return hex(value, size);
}

CheckedSignature check_signature(const httplib::Request& request, const std::string& secret) {
  const std::string header = request.get_header_value("Authorization");
  const std::vector<std::string> scope = split(field(header, "Credential"), '/');
  if (scope.size() != 5) return {};
  const std::size_t question = std::min(request.target.find('?'), request.target.size());
  const std::string query = question < request.target.size() ? request.target.substr(question + 1) : "";
  const std::string signed_headers = field(header, "SignedHeaders");
  std::string canonical =
      request.method + "\n" + request.target.substr(0, question) + "\n" + canonical_query(query) + "\n";
  for (const std::string& name : split(signed_headers, ';'))
    canonical += name + ":" + request.get_header_value(name.c_str()) + "\n";
  canonical += "\n" + signed_headers + "\n" + request.get_header_value("x-amz-content-sha256");
  const std::string day_scope = scope[1] + "/" + scope[2] + "/" + scope[3] + "/" + scope[4];
  const std::string text =
      "AWS4-HMAC-SHA256\n" + request.get_header_value("x-amz-date") + "\n" + day_scope + "\n" + hex_sha256(canonical);
  std::string key = "AWS4" + secret;
  for (std::size_t i = 1; i < scope.size(); ++i) key = hmac(key, scope[i]);
  const std::string signature = hmac(key, text);
  const std::string expected = hex(reinterpret_cast<const unsigned char*>(signature.data()), 32);
  // What a storage needs to trust: the host, the content and all that begins with x-amz-.
  bool all_signed = true;
  for (const auto& [name, value] : request.headers) {
    std::string lower = name;
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
    if (lower == "host" || lower.starts_with("x-amz-"))
      all_signed &= (";" + signed_headers + ";").find(";" + lower + ";") != std::string::npos;
  }
  return {all_signed && field(header, "Signature") == expected, scope[0], scope[2]};
}

}  // namespace quench::testing
