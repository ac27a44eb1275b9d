#include "distributed/store/store.h"

#include <sys/socket.h>

#include <charconv>

#include "core/system/check.h"
#include "distributed/store/handshakes.h"

namespace quench::distributed {
namespace {

constexpr auto kReconnectTime = std::chrono::seconds(60);

}  // namespace

Store::Store(Endpoint endpoint, std::string secret, std::chrono::milliseconds timeout)
    : endpoint_(std::move(endpoint)),
      secret_(std::move(secret)),
      socket_(connect_with_proof(endpoint_, secret_, 0, Clock::now() + timeout)) {}

std::string Store::derived_secret(std::string_view purpose) const {
  const Sha256Digest digest = hmac_sha256(secret_, purpose);
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

std::unique_ptr<Store> Store::connect_again() const {
  return std::make_unique<Store>(endpoint_, secret_, kReconnectTime);
}

void Store::set(const std::string& key, std::string_view value) {
  call(StoreOp::set, key, value);
}

std::optional<std::string> Store::wait(const std::string& key, std::chrono::milliseconds timeout) {
  StoreStatus status{};
  std::string value = call(StoreOp::get, key, {}, timeout, status);
  if (status == StoreStatus::timed_out) return std::nullopt;
  return value;
}

std::string Store::get(const std::string& key, std::chrono::milliseconds timeout) {
  std::optional<std::string> value = wait(key, timeout);
  QUENCH_CHECK_AS(ErrorCode::failed, value.has_value(), "'{}' was not set in the store on {} within {} s", key,
                  endpoint_.to_string(), static_cast<double>(timeout.count()) / 1000);
  return *std::move(value);
}

std::int64_t Store::add(const std::string& key, std::int64_t amount) {
  const std::string text = call(StoreOp::add, key, std::to_string(amount));
  std::int64_t sum = 0;
  std::from_chars(text.data(), text.data() + text.size(), sum);
  return sum;
}

std::string Store::set_if_absent(const std::string& key, std::string_view value) {
  return call(StoreOp::set_if_absent, key, value);
}

void Store::set_last_will(const std::string& key, std::string_view value) {
  call(StoreOp::set_last_will, key, value);
}

void Store::interrupt() noexcept {
  const std::scoped_lock lock(socket_mutex_);
  if (socket_.is_open()) ::shutdown(socket_.descriptor(), SHUT_RDWR);
}

std::string Store::call(StoreOp op, const std::string& key, std::string_view value) {
  StoreStatus status{};
  return call(op, key, value, std::chrono::milliseconds(0), status);
}

std::string Store::call(StoreOp op, const std::string& key, std::string_view value, std::chrono::milliseconds timeout,
                        StoreStatus& status) {
  const std::string bytes = encode_request({op, static_cast<std::uint32_t>(timeout.count()), key, std::string(value)});
  const std::scoped_lock lock(mutex_);
  QUENCH_CHECK_AS(ErrorCode::failed, socket_.is_open(), "the connection to the store on {} is lost",
                  endpoint_.to_string());
  try {
    const Deadline deadline = Clock::now() + timeout + answer_time_.load();
    write_all(socket_, bytes, deadline);
    char head[kFrameHead];
    read_all(socket_, head, sizeof head, deadline);
    const std::uint32_t length = read_u32(head);
    QUENCH_CHECK_AS(ErrorCode::failed, length >= 1 && length <= 1 + kMaxValueBytes, "an answer of {} bytes", length);
    std::string answer(length, '\0');
    read_all(socket_, answer.data(), answer.size(), deadline);
    status = static_cast<StoreStatus>(answer[0]);
    answer.erase(0, 1);
    QUENCH_CHECK_AS(ErrorCode::failed, status == StoreStatus::ok || status == StoreStatus::timed_out, "{}", answer);
    return answer;
  } catch (const Error& error) {
    {
      const std::scoped_lock closing(socket_mutex_);
      socket_.close();  // a late reply would be matched to the wrong request
    }
    QUENCH_FAIL(ErrorCode::failed, "the store on {}, '{}': {}", endpoint_.to_string(), key, error.what());
  }
}

}  // namespace quench::distributed
