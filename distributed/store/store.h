#pragma once
// Client of a job's key-value store (server.h). Calls are serialized: a thread with long waits needs its own connection
// (connect_again).
//
// Every call throws Error(failed) naming the store's endpoint on a lost connection.

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

// Time limit of a reply, in addition to the call's own timeout.
inline constexpr std::chrono::milliseconds kAnswerTime{60'000};

class Store {
 public:
  // Retries until the timeout, including connections lost before the store's reply (connect_with_proof). Throws
  // bad_config if the store refuses the secret (another job or token).
  Store(Endpoint endpoint, std::string secret, std::chrono::milliseconds timeout);
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  [[nodiscard]] std::unique_ptr<Store> connect_again() const;

  void set(const std::string& key, std::string_view value);
  // Waits for the key; nothing on a timeout.
  [[nodiscard]] std::optional<std::string> wait(const std::string& key, std::chrono::milliseconds timeout);
  // Waits for the key; throws failed naming it on a timeout.
  [[nodiscard]] std::string get(const std::string& key, std::chrono::milliseconds timeout);
  [[nodiscard]] std::optional<std::string> try_get(const std::string& key) { return wait(key, {}); }
  // Adds `amount` to an integer key (initially 0); returns the sum.
  std::int64_t add(const std::string& key, std::int64_t amount);
  // Returns the value after the call.
  std::string set_if_absent(const std::string& key, std::string_view value);
  // Value set by the server (if absent) when this connection ends for any reason; an empty value cancels it. One per
  // connection.
  void set_last_will(const std::string& key, std::string_view value);

  // Replaces kAnswerTime for later calls.
  void set_answer_time(std::chrono::milliseconds time) noexcept { answer_time_ = time; }

  // Secret derived from the store's secret for another purpose.
  [[nodiscard]] std::string derived_secret(std::string_view purpose) const;

  // Fails a call on another thread at once, and all later calls.
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
