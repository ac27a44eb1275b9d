#pragma once
// The key-value store of a job, served over TCP from a thread of its own.
//
// It holds strings under keys, for processes that want to find each other; see protocol.h for messages and limits. A
// connection that does not prove within kHandshakeSeconds that it knows the secret is closed, as is one that breaks the
// format; neither disturbs the others. Memory is bounded: kMaxStoredBytes of values, one frame a proved connection, 64
// bytes for any other.

#include <cstddef>
#include <memory>
#include <string>

#include "distributed/store/socket.h"

namespace quench::distributed {

class StoreServer {
 public:
  // Serves at once. `max_connections` counts proved ones; a stranger never takes a place from them.
  StoreServer(Socket listener, std::string secret, int max_connections);
  ~StoreServer();  // closes all connections
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  [[nodiscard]] int port() const noexcept;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace quench::distributed
