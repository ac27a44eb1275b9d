#pragma once
// The connections that the ranks of a group make to this one: each proves that it knows the group's secret, and says
// its rank. Connections of others are closed (distributed/store/handshakes.h) and change nothing.

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
  // Listens at once, on a thread of its own, until its end.
  PeerListener(Socket listener, std::string secret);
  ~PeerListener();
  PeerListener(const PeerListener&) = delete;
  PeerListener& operator=(const PeerListener&) = delete;

  [[nodiscard]] int port() const noexcept { return port_; }
  // The connection of that rank; nothing where none comes within the time. A rank that has connected again, because its
  // first attempt was lost, has its latest connection here.
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
