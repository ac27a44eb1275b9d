#pragma once
// A connection to the key-value store of a job (server.h). Calls of several threads are serialized: a thread
// that waits long has a connection of its own (connect_again).
//
// Every call throws Error(failed) naming the store's endpoint when the connection is lost.

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

// The time that an answer may take beyond that which the call itself allows.
inline constexpr std::chrono::milliseconds kAnswerTime{60'000};

class Store {
 public:
  // Keeps trying until the timeout, also where connections are lost before the store has answered (connect_with_proof).
  // Throws bad_config when the store refuses the secret: another job's, or another token.
  Store(Endpoint endpoint, std::string secret, std::chrono::milliseconds timeout);
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  [[nodiscard]] std::unique_ptr<Store> connect_again() const;

  void set(const std::string& key, std::string_view value);
  // Waits until it is set; absent after the timeout.
  [[nodiscard]] std::optional<std::string> wait(const std::string& key, std::chrono::milliseconds timeout);
  // The same; throws failed naming the key when the time is over.
  [[nodiscard]] std::string get(const std::string& key, std::chrono::milliseconds timeout);
  [[nodiscard]] std::optional<std::string> try_get(const std::string& key) { return wait(key, {}); }
  // The number under a key, 0 at first, plus `amount`; returns the sum.
  std::int64_t add(const std::string& key, std::int64_t amount);
  // Returns what is under the key afterwards.
  std::string set_if_absent(const std::string& key, std::string_view value);
  // What the server sets (if absent) when this connection ends, however it ends; an empty value takes it back. One a
  // connection.
  void set_last_will(const std::string& key, std::string_view value);

  // In the place of kAnswerTime, for later calls.
  void set_answer_time(std::chrono::milliseconds time) noexcept { answer_time_ = time; }

  // A secret of those that know the store's, for another purpose.
  [[nodiscard]] std::string derived_secret(std::string_view purpose) const;

  // A call under way on another thread fails at once, and so do later ones.
  void interrupt() noexcept;

  [[nodiscard]] const Endpoint& endpoint() const noexcept { return endpoint_; }
  // The address of the interface that leads to the store.
  [[nodiscard]] std::string address() const { return local_address(socket_); }

 private:
  std::string call(StoreOp op, const std::string& key, std::string_view value, std::chrono::milliseconds timeout,
                   StoreStatus& status);
  std::string call(StoreOp op, const std::string& key, std::string_view value);

  Endpoint endpoint_;
  std::string secret_;
  std::atomic<std::chrono::milliseconds> answer_time_{kAnswerTime};
  std::mutex mutex_;         // of one call
  std::mutex socket_mutex_;  // of the socket's end
  Socket socket_;
};

}  // namespace quench::distributed
