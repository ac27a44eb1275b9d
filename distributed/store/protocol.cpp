#include "distributed/store/protocol.h"

#include <sys/random.h>

#include <cerrno>

#include "core/system/check.h"
#include "core/system/file.h"

namespace quench::distributed {
namespace {

void put(std::string& bytes, std::uint64_t value, int count) {
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i));
}

std::uint32_t take(std::string_view bytes, std::size_t at, std::size_t count) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < count; ++i)
    value |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(bytes[at + i])) << (8 * i);
  return value;
}

Sha256Digest proof(std::string_view secret, std::string_view role, std::string_view server_nonce,
                   std::string_view client_nonce) {
  std::string text(role);
  text += server_nonce;
  text += client_nonce;
  return hmac_sha256(secret, text);
}

// Public part of a secret: the job's name.
std::string_view job_of(std::string_view secret) {
  return secret.substr(secret.rfind('\n') + 1);
}

Sha256Digest job_proof(std::string_view secret, std::string_view server_nonce, std::string_view client_nonce) {
  return proof(job_of(secret), "job", server_nonce, client_nonce);
}

std::string_view bytes_of(const Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

std::string store_secret(std::string_view token, std::string_view job) {
  return fmt::format("{}\n{}", token, job);
}

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  QUENCH_CHECK_AS(ErrorCode::failed, ::getrandom(bytes.data(), count, 0) == static_cast<ssize_t>(count),
                  "no random numbers from the system: {}", errno_text(errno));
  return bytes;
}

std::string new_token() {
  std::string token;
  for (const char byte : random_bytes(sizeof(Sha256Digest)))
    token += fmt::format("{:02x}", static_cast<std::uint8_t>(byte));
  return token;
}

Sha256Digest client_proof(std::string_view secret, std::string_view server_nonce, std::string_view client_nonce) {
  return proof(secret, "client", server_nonce, client_nonce);
}
Sha256Digest server_proof(std::string_view secret, std::string_view server_nonce, std::string_view client_nonce) {
  return proof(secret, "server", server_nonce, client_nonce);
}

std::string encode_proof(std::string_view secret, std::string_view server_nonce, std::uint32_t number,
                         std::string& client_nonce) {
  client_nonce = random_bytes(kNonceBytes);
  put(client_nonce, number, 4);
  std::string answer = client_nonce;
  answer += bytes_of(client_proof(secret, server_nonce, client_nonce));
  answer += bytes_of(job_proof(secret, server_nonce, client_nonce));
  return answer;
}

std::uint32_t number_of_proof(std::string_view client_nonce) noexcept {
  return take(client_nonce, kNonceBytes, 4);
}

std::optional<Refusal> check_proof(std::string_view secret, std::string_view server_nonce, std::string_view answer) {
  const std::string_view client_nonce = answer.substr(0, kClientNonceBytes);
  const std::string_view proof = answer.substr(kClientNonceBytes, sizeof(Sha256Digest));
  if (equal_digests(client_proof(secret, server_nonce, client_nonce), proof)) return std::nullopt;
  const bool same_job = equal_digests(job_proof(secret, server_nonce, client_nonce),
                                      answer.substr(kClientNonceBytes + sizeof(Sha256Digest), sizeof(Sha256Digest)));
  return same_job ? Refusal::other_token : Refusal::other_job;
}

std::string encode_refusal(Refusal reason) {
  std::string bytes(kRefusalMagic);
  put(bytes, static_cast<std::uint8_t>(reason), 1);
  bytes.resize(sizeof(Sha256Digest));
  return bytes;
}

std::optional<Refusal> decode_refusal(std::string_view bytes) noexcept {
  if (!bytes.starts_with(kRefusalMagic)) return std::nullopt;
  return static_cast<Refusal>(take(bytes, kRefusalMagic.size(), 1));
}

std::string encode_request(const StoreRequest& request) {
  QUENCH_CHECK(!request.key.empty() && request.key.size() <= kMaxKeyBytes, "store key of {} bytes (1 to {})",
               request.key.size(), kMaxKeyBytes);
  QUENCH_CHECK(request.value.size() <= kMaxValueBytes, "store value of {} bytes for '{}' (at most {})",
               request.value.size(), request.key, kMaxValueBytes);
  std::string bytes;
  put(bytes, kRequestHead + request.key.size() + request.value.size(), kFrameHead);
  put(bytes, static_cast<std::uint8_t>(request.op), 1);
  put(bytes, request.timeout_ms, 4);
  put(bytes, request.key.size(), 2);
  return bytes + request.key + request.value;
}

std::string encode_answer(StoreStatus status, std::string_view value) {
  std::string bytes;
  put(bytes, 1 + value.size(), kFrameHead);
  put(bytes, static_cast<std::uint8_t>(status), 1);
  return bytes.append(value);
}

bool decode_request(std::string_view bytes, StoreRequest& request) {
  if (bytes.size() < kRequestHead) return false;
  const std::uint32_t op = take(bytes, 0, 1);
  if (op == 0 || op > static_cast<std::uint32_t>(kLastStoreOp)) return false;
  const std::size_t key_bytes = take(bytes, 5, 2);
  if (key_bytes == 0 || key_bytes > kMaxKeyBytes || kRequestHead + key_bytes > bytes.size()) return false;
  if (bytes.size() - kRequestHead - key_bytes > kMaxValueBytes) return false;
  request.op = static_cast<StoreOp>(op);
  request.timeout_ms = take(bytes, 1, 4);
  request.key = bytes.substr(kRequestHead, key_bytes);
  request.value = bytes.substr(kRequestHead + key_bytes);
  return true;
}

std::uint32_t read_u32(const char* bytes) noexcept {
  return take({bytes, kFrameHead}, 0, kFrameHead);
}

}  // namespace quench::distributed
