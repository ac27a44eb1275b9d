#pragma once
// Listener for a group's ranks. Each peer proves the group's secret and sends its rank; others are closed
// (store/handshakes.h).

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "distributed/store/handshakes.h"

namespace quench::distributed {

class PeerListener {
 public:
  PeerListener(Socket listener, std::string secret);
  ~PeerListener();
  PeerListener(const PeerListener&) = delete;
  PeerListener& operator=(const PeerListener&) = delete;

  [[nodiscard]] int port() const noexcept { return port_; }
  // Nothing on a timeout. After a reconnect, the latest connection.
  [[nodiscard]] std::optional<Socket> wait(int rank, std::chrono::milliseconds timeout);

 private:
  void run();

  Socket listener_;
  int port_;
  Socket stop_;
  Handshakes handshakes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Socket> connections_;
  std::thread thread_;
};

}  // namespace quench::distributed
