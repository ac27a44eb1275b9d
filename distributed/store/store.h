#pragma once
// Client of a job's key-value store (server.h). Calls are serialized: a thread with long waits needs its own connection
// (connect_again). A lost connection throws Error(failed) naming the endpoint.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "distributed/store/protocol.h"
#include "distributed/store/socket.h"

namespace quench::distributed {

// For a reply, in addition to the call's timeout.
inline constexpr std::chrono::milliseconds kAnswerTime{60'000};

// Rank whose process the launcher has seen end with status 0, the first of an attempt.
[[nodiscard]] inline std::string ended_rank_key(int attempt) {
  return "ended rank/" + std::to_string(attempt);
}

class Store {
 public:
  // Retries until the timeout (connect_with_proof). Throws bad_config if the store refuses the secret.
  Store(Endpoint endpoint, std::string secret, std::chrono::milliseconds timeout);
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  [[nodiscard]] std::unique_ptr<Store> connect_again() const;

  void set(const std::string& key, std::string_view value);
  // Nothing on a timeout.
  [[nodiscard]] std::optional<std::string> wait(const std::string& key, std::chrono::milliseconds timeout);
  // Throws failed naming the key on a timeout.
  [[nodiscard]] std::string get(const std::string& key, std::chrono::milliseconds timeout);
  [[nodiscard]] std::optional<std::string> try_get(const std::string& key) { return wait(key, {}); }
  // Absent: 0. Returns the sum.
  std::int64_t add(const std::string& key, std::int64_t amount);
  // Returns the value after the call.
  std::string set_if_absent(const std::string& key, std::string_view value);
  // Set by the server (if absent) when this connection ends for any reason; an empty value cancels. One per connection.
  void set_last_will(const std::string& key, std::string_view value);

  // For later calls, instead of kAnswerTime.
  void set_answer_time(std::chrono::milliseconds time) noexcept { answer_time_ = time; }

  [[nodiscard]] std::string derived_secret(std::string_view purpose) const;

  // Fails a call on another thread, and all later calls.
  void interrupt() noexcept;

  [[nodiscard]] const Endpoint& endpoint() const noexcept { return endpoint_; }
  // Address of the interface that reaches the store.
  [[nodiscard]] std::string address() const { return local_address(socket_); }

 private:
  std::string call(StoreOp op, const std::string& key, std::string_view value, std::chrono::milliseconds timeout,
                   StoreStatus& status);
  std::string call(StoreOp op, const std::string& key, std::string_view value);

  Endpoint endpoint_;
  std::string secret_;
  std::atomic<std::chrono::milliseconds> answer_time_{kAnswerTime};
  std::mutex mutex_;
  std::mutex socket_mutex_;
  Socket socket_;
};

}  // namespace quench::distributed
