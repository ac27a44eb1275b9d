#pragma once
// The key-value store of a job, served over TCP from a thread of its own.
//
// It holds strings under keys, for processes that want to find each other; see protocol.h for messages and limits. A
// connection that does not prove within kHandshakeSeconds that it knows the secret is closed (handshakes.h), as is one
// that breaks the format; neither disturbs the others. Memory is bounded: kMaxStoredBytes of values, one frame a proved
// connection, the handshake's bytes for any other.

#include <cstddef>
#include <memory>
#include <string>

#include "distributed/store/handshakes.h"
#include "distributed/store/socket.h"

namespace quench::distributed {

// Under this key stands the address of the first process that was refused because it has another token of the same job.
inline constexpr const char* kOtherTokenKey = "store/other token";

class StoreServer {
 public:
  // Serves at once. `max_connections` counts proved ones; `limits` are those of the others, which never take a place
  // from them.
  StoreServer(Socket listener, std::string secret, int max_connections, Handshakes::Limits limits = {});
  ~StoreServer();  // closes all connections
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  [[nodiscard]] int port() const noexcept;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace quench::distributed
