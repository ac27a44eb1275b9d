#pragma once
// TCP sockets with deadlines. Errors name host and port. Descriptors are close-on-exec.

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace quench::distributed {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

// Milliseconds for poll(2), rounded up: 0 after the deadline, at most an hour.
[[nodiscard]] int poll_timeout(Deadline deadline);

struct Endpoint {
  std::string host;
  int port = 0;
  [[nodiscard]] std::string to_string() const;  // "host:port", "[::1]:port"
};

// "host", "host:port", "[v6 address]:port". Throws bad_config naming `what` (flag or variable) for ports outside
// 0..65535 and empty hosts.
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

 private:
  int descriptor_ = -1;
};

// Port 0: a free port. All addresses if the host's is not local (as in a container). Throws bad_config for an unknown
// name, or a used or forbidden port, naming the owning process if visible; failed without free sockets.
[[nodiscard]] Socket listen_on(const Endpoint& endpoint);
[[nodiscard]] int local_port(const Socket& socket);
// Address of the interface that reaches the peer.
[[nodiscard]] std::string local_address(const Socket& socket);
[[nodiscard]] std::string peer_address(const Socket& socket);

// Retries until the deadline while refused or the name is unknown; throws not_found for an unknown name, else failed
// with the last reason. Throws at once without free descriptors.
[[nodiscard]] Socket connect_to(const Endpoint& endpoint, Deadline deadline);

// Transfer all bytes; throw failed on a closed connection or at the deadline.
void write_all(const Socket& socket, std::string_view bytes, Deadline deadline);
void read_all(const Socket& socket, char* bytes, std::size_t count, Deadline deadline);

// TCP_NODELAY. Without it, two small messages in a row wait for the peer's delayed acknowledgement, 40 ms on Linux.
void set_no_delay(const Socket& socket);
// Detects a vanished peer (power, network) within about 20 seconds.
void set_keep_alive(const Socket& socket);
void unset_keep_alive(const Socket& socket);

// Throws failed, naming the limit, if `count` more descriptors cannot be opened.
void require_descriptors(int count, std::string_view what);

// Numeric addresses of a name; none if it is unknown.
[[nodiscard]] std::vector<std::string> addresses_of(const std::string& host);
// Numeric addresses of this machine's interfaces that are up, in the kernel's order.
[[nodiscard]] std::vector<std::string> own_addresses();
// "localhost", or a numeric address of the loopback interface.
[[nodiscard]] bool is_loopback(std::string_view host);
// Name or address of this machine.
[[nodiscard]] bool is_this_machine(const std::string& host);
[[nodiscard]] std::string host_name();

}  // namespace quench::distributed
