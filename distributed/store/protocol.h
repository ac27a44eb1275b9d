#pragma once
// What the two ends of a store connection say to each other, and the limits that both keep.
//
// Handshake: the server sends a greeting (magic, 32 random bytes); the client answers with 32 random bytes of its own,
// a number (u32, for the use of the listener), an HMAC of all of these under the secret and one under the job's name
// alone; the server checks the first and answers with an HMAC in the other direction, or with a refusal that says why.
// Neither side sends the secret, and an overheard handshake is worth nothing for another one. The second HMAC proves
// nothing: it tells a process of this job that has another token from other clients. After the handshake come requests
// and answers, each a frame: u32 length, then that many bytes, little-endian.
//   request  u8 op, u32 timeout in milliseconds, u16 length of the key, key, value
//   answer   u8 status, value
// Nothing received is ever interpreted beyond these fields.

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
inline constexpr std::size_t kMaxStoredBytes = std::size_t{256} << 20;  // of one server
inline constexpr int kHandshakeSeconds = 5;
inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::string_view kStoreMagic = "QSTORE02";
inline constexpr std::string_view kRefusalMagic = "QREFUSED";
inline constexpr std::size_t kGreetingBytes = kStoreMagic.size() + kNonceBytes;
inline constexpr std::size_t kClientNonceBytes = kNonceBytes + 4;  // with the number
inline constexpr std::size_t kAnswerBytes = kClientNonceBytes + 2 * sizeof(Sha256Digest);
inline constexpr std::size_t kRequestHead = 1 + 4 + 2;
inline constexpr std::size_t kFrameHead = 4;

enum class StoreOp : std::uint8_t {
  set = 1,        // key = value
  get,            // the value, once there is one, else timed_out
  add,            // key as a signed number, 0 if absent, plus the value's number (text); the answer is the sum
  set_if_absent,  // key = value unless there is one; the answer is what is there then
  set_last_will,  // when this connection ends: set_if_absent(key, value); an empty value takes it back
};
inline constexpr StoreOp kLastStoreOp = StoreOp::set_last_will;

enum class StoreStatus : std::uint8_t { ok = 0, timed_out, refused, full };

// Reasons of a refusal.
enum class Refusal : std::uint8_t {
  other_job = 1,  // neither the secret nor the job's name is the server's
  other_token,    // the job's name is, the secret is not
  full,           // the secret is, and there is no place: worth another try
};

struct StoreRequest {
  StoreOp op = StoreOp::get;
  std::uint32_t timeout_ms = 0;
  std::string key;
  std::string value;
};

// The secret of a job: its token and its id, so that neither a stranger nor another job gets in.
[[nodiscard]] std::string store_secret(std::string_view token, std::string_view job);
[[nodiscard]] std::string random_bytes(std::size_t count);
// 32 random bytes in hexadecimal.
[[nodiscard]] std::string new_token();

[[nodiscard]] Sha256Digest client_proof(std::string_view secret, std::string_view server_nonce,
                                        std::string_view client_nonce);
[[nodiscard]] Sha256Digest server_proof(std::string_view secret, std::string_view server_nonce,
                                        std::string_view client_nonce);

// The client's side of the handshake: `number` is for the listener. `client_nonce` receives what the proofs are over.
[[nodiscard]] std::string encode_proof(std::string_view secret, std::string_view server_nonce, std::uint32_t number,
                                       std::string& client_nonce);
[[nodiscard]] std::uint32_t number_of_proof(std::string_view client_nonce) noexcept;
// Nothing where the client knows the secret, else the reason to refuse it. `answer` is of kAnswerBytes.
[[nodiscard]] std::optional<Refusal> check_proof(std::string_view secret, std::string_view server_nonce,
                                                 std::string_view answer);
// In the place of the server's proof, and of its size.
[[nodiscard]] std::string encode_refusal(Refusal reason);
[[nodiscard]] std::optional<Refusal> decode_refusal(std::string_view bytes) noexcept;

// With the frame's length in front.
[[nodiscard]] std::string encode_request(const StoreRequest& request);
[[nodiscard]] std::string encode_answer(StoreStatus status, std::string_view value);
// The bytes after the frame's length. False where they are no request.
[[nodiscard]] bool decode_request(std::string_view bytes, StoreRequest& request);
[[nodiscard]] std::uint32_t read_u32(const char* bytes) noexcept;

}  // namespace quench::distributed
