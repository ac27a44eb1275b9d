#pragma once
// Store protocol: handshake, frames and limits.
//
// Handshake: the server sends magic and a 32-byte nonce. The client replies with its own nonce, a number (u32, for the
// listener), an HMAC of all these under the secret, and one under the job's name. The server verifies the first and
// replies with an HMAC in the other direction, or a refusal. The secret is never sent; nonces prevent replay. The
// second HMAC is no proof: anyone who knows the job's name can send it. It only words the refusal.
//
// Requests and replies are frames: u32 length, then that many bytes, little-endian.
//   request  u8 op, u32 timeout in milliseconds, u16 length of the key, key, value
//   answer   u8 status, value

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "distributed/store/sha256.h"

namespace quench::distributed {

inline constexpr std::size_t kMaxKeyBytes = 256;
inline constexpr std::size_t kMaxValueBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxStoredBytes = std::size_t{256} << 20;
inline constexpr int kHandshakeSeconds = 5;
inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::string_view kStoreMagic = "QSTORE02";
inline constexpr std::string_view kRefusalMagic = "QREFUSED";
inline constexpr std::size_t kGreetingBytes = kStoreMagic.size() + kNonceBytes;
inline constexpr std::size_t kClientNonceBytes = kNonceBytes + 4;
inline constexpr std::size_t kAnswerBytes = kClientNonceBytes + 2 * sizeof(Sha256Digest);
inline constexpr std::size_t kRequestHead = 1 + 4 + 2;
inline constexpr std::size_t kFrameHead = 4;

enum class StoreOp : std::uint8_t {
  set = 1,
  get,            // waits for the value; timed_out otherwise
  add,            // adds a decimal integer (absent: 0); returns the sum
  set_if_absent,  // returns the current value
  set_last_will,  // on disconnect: set_if_absent(key, value); an empty value cancels
};
inline constexpr StoreOp kLastStoreOp = StoreOp::set_last_will;

enum class StoreStatus : std::uint8_t { ok = 0, timed_out, refused, full };

enum class Refusal : std::uint8_t {
  other_job = 1,  // neither secret nor job's name matches
  other_token,    // job's name matches, secret does not
  full,           // secret matches, no free slot: retry
};

struct StoreRequest {
  StoreOp op = StoreOp::get;
  std::uint32_t timeout_ms = 0;
  std::string key;
  std::string value;
};

// Derived from the job's token and id.
[[nodiscard]] std::string store_secret(std::string_view token, std::string_view job);
[[nodiscard]] std::string random_bytes(std::size_t count);
// 32 random bytes in hexadecimal.
[[nodiscard]] std::string new_token();

[[nodiscard]] Sha256Digest client_proof(std::string_view secret, std::string_view server_nonce,
                                        std::string_view client_nonce);
[[nodiscard]] Sha256Digest server_proof(std::string_view secret, std::string_view server_nonce,
                                        std::string_view client_nonce);

// Client's reply. `client_nonce` receives the bytes covered by the proofs.
[[nodiscard]] std::string encode_proof(std::string_view secret, std::string_view server_nonce, std::uint32_t number,
                                       std::string& client_nonce);
[[nodiscard]] std::uint32_t number_of_proof(std::string_view client_nonce) noexcept;
// Nothing if the client knows the secret. `answer` has kAnswerBytes bytes.
[[nodiscard]] std::optional<Refusal> check_proof(std::string_view secret, std::string_view server_nonce,
                                                 std::string_view answer);
// Same size as the server's proof.
[[nodiscard]] std::string encode_refusal(Refusal reason);
[[nodiscard]] std::optional<Refusal> decode_refusal(std::string_view bytes) noexcept;

// With the frame length.
[[nodiscard]] std::string encode_request(const StoreRequest& request);
[[nodiscard]] std::string encode_answer(StoreStatus status, std::string_view value);
// `bytes` excludes the frame length. False if invalid.
[[nodiscard]] bool decode_request(std::string_view bytes, StoreRequest& request);
[[nodiscard]] std::uint32_t read_u32(const char* bytes) noexcept;

}  // namespace quench::distributed
