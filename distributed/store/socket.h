#pragma once
// TCP sockets with deadlines. Errors name host and port. All descriptors are closed on exec.

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace quench::distributed {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

struct Endpoint {
  std::string host;
  int port = 0;
  [[nodiscard]] std::string to_string() const;  // "host:port", "[::1]:port"
};

// "host", "host:port", "[v6 address]:port"; `default_port` where there is none. Throws bad_config naming `what` (the
// flag or variable it comes from) for ports outside 0..65535 and empty hosts.
[[nodiscard]] Endpoint parse_endpoint(std::string_view text, int default_port, std::string_view what);

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) noexcept : descriptor_(descriptor) {}
  ~Socket();
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  [[nodiscard]] bool is_open() const noexcept { return descriptor_ >= 0; }
  void close() noexcept;
  // Gives the descriptor away; -1 where there is none.
  [[nodiscard]] int release() noexcept;

 private:
  int descriptor_ = -1;
};

// Listens on a host's address; port 0 takes a free one. Where the host's address is none of this machine's (another
// name for it outside a container, say) it listens on all addresses. Throws bad_config where the name is unknown, and
// where the port is taken or forbidden, naming the process that has it if that can be seen; failed where the system has
// no more sockets.
[[nodiscard]] Socket listen_on(const Endpoint& endpoint);
[[nodiscard]] int local_port(const Socket& socket);
// The numeric address of this end of a connection: that of the interface that leads to the peer.
[[nodiscard]] std::string local_address(const Socket& socket);
[[nodiscard]] std::string peer_address(const Socket& socket);

// Keeps trying until the deadline, while nothing listens there or the name is not known yet. Throws with the last
// reason: not_found where the name is still unknown, else failed. Throws at once where there are no more descriptors.
[[nodiscard]] Socket connect_to(const Endpoint& endpoint, Deadline deadline);

// The whole of it; throw failed when the peer closes or the deadline passes.
void write_all(const Socket& socket, std::string_view bytes, Deadline deadline);
void read_all(const Socket& socket, char* bytes, std::size_t count, Deadline deadline);

// A peer that vanishes without a word (power, network) ends the connection within some 20 seconds.
void set_keep_alive(const Socket& socket);
void unset_keep_alive(const Socket& socket);

// Throws failed, naming the limit, where this process may not open so many further files and connections: for what
// would wait for a descriptor that never comes.
void require_descriptors(int count, std::string_view what);

// Whether the endpoint's host names this machine: its name or one of its addresses.
[[nodiscard]] bool is_this_machine(const std::string& host);
[[nodiscard]] std::string host_name();

}  // namespace quench::distributed
