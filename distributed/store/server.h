#pragma once
// Key-value store of a job: TCP server on its own thread.
//
// Connections with malformed frames or without a valid proof in time (handshakes.h) are closed. Bounded memory:
// kMaxStoredBytes of values, one frame per authenticated connection, the handshake bytes of any other.

#include <cstddef>
#include <memory>
#include <string>

#include "distributed/store/handshakes.h"
#include "distributed/store/socket.h"

namespace quench::distributed {

// Sentence about connections refused for another token, where there were some. Anyone can cause it: for messages only.
inline constexpr const char* kOtherTokensKey = "store/other tokens";

class StoreServer {
 public:
  // `max_connections`: authenticated; `limits`: unauthenticated, in separate slots.
  StoreServer(Socket listener, std::string secret, int max_connections, Handshakes::Limits limits = {});
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  [[nodiscard]] int port() const noexcept;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace quench::distributed
