#pragma once
// TCP sockets with deadlines. Errors name host and port. File descriptors are close-on-exec.

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

// "host", "host:port", "[v6 address]:port"; `default_port` if absent. Throws bad_config naming `what` (flag or
// variable) for ports outside 0..65535 and empty hosts.
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
  // Releases ownership of the file descriptor; -1 if none.
  [[nodiscard]] int release() noexcept;

 private:
  int descriptor_ = -1;
};

// Listens on a host's address; port 0 selects a free port. Falls back to all addresses if the host's address is not
// local (for example inside a container). Throws bad_config for an unknown name, or a used or forbidden port, naming
// the owning process if visible; failed without free sockets.
[[nodiscard]] Socket listen_on(const Endpoint& endpoint);
[[nodiscard]] int local_port(const Socket& socket);
// Local numeric address of a connection: the interface that reaches the peer.
[[nodiscard]] std::string local_address(const Socket& socket);
[[nodiscard]] std::string peer_address(const Socket& socket);

// Retries until the deadline while the connection is refused or the name is unknown. Throws with the last reason:
// not_found for an unknown name, else failed. Throws at once without free file descriptors.
[[nodiscard]] Socket connect_to(const Endpoint& endpoint, Deadline deadline);

// Transfer all bytes; throw failed on a closed connection or at the deadline.
void write_all(const Socket& socket, std::string_view bytes, Deadline deadline);
void read_all(const Socket& socket, char* bytes, std::size_t count, Deadline deadline);

// TCP keep-alive: detects a vanished peer (power, network) within about 20 seconds.
void set_keep_alive(const Socket& socket);
void unset_keep_alive(const Socket& socket);

// Throws failed, naming the limit, if this process cannot open `count` more file descriptors.
void require_descriptors(int count, std::string_view what);

// True if the endpoint's host is a name or an address of this machine.
[[nodiscard]] bool is_this_machine(const std::string& host);
[[nodiscard]] std::string host_name();

}  // namespace quench::distributed
