#include "distributed/store/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "core/system/check.h"
#include "core/system/file.h"
#include "distributed/store/port_owner.h"

namespace quench::distributed {
namespace {

constexpr auto kFirstPause = std::chrono::milliseconds(10);
constexpr auto kLongestPause = std::chrono::milliseconds(500);

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// Null, with `reason`, if unknown.
Addresses resolve(const Endpoint& endpoint, int flags, std::string& reason) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  const int status = ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  if (status != 0) reason = status == EAI_SYSTEM ? errno_text(errno) : ::gai_strerror(status);
  return {status == 0 ? found : nullptr, &::freeaddrinfo};
}

Socket open_socket(const addrinfo& address) {
  return Socket(::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
}

bool wait_ready(const Socket& socket, short events, Deadline deadline) {
  pollfd entry{socket.descriptor(), events, 0};
  while (true) {
    const int ready = ::poll(&entry, 1, poll_timeout(deadline));
    if (ready > 0) return true;
    if (ready == 0 && Clock::now() >= deadline) return false;
    QUENCH_CHECK_AS(ErrorCode::failed, ready >= 0 || errno == EINTR, "poll: {}", errno_text(errno));
  }
}

// 0 on success, else errno.
int try_connect(const Socket& socket, const addrinfo& address, Deadline deadline) {
  if (::connect(socket.descriptor(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_ready(socket, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

std::string numeric(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST] = "";
  ::getnameinfo(address, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

std::string address_of(const Socket& socket, decltype(&::getsockname) which) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  QUENCH_CHECK_AS(ErrorCode::failed, which(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), &length) == 0,
                  "address of a connection: {}", errno_text(errno));
  return numeric(reinterpret_cast<sockaddr*>(&address), length);
}

void set_option(const Socket& socket, int level, int option, int value) {
  ::setsockopt(socket.descriptor(), level, option, &value, sizeof value);
}

}  // namespace

int poll_timeout(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
}

Socket::~Socket() {
  close();
}
Socket::Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    descriptor_ = std::exchange(other.descriptor_, -1);
  }
  return *this;
}
void Socket::close() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

std::string Endpoint::to_string() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

Endpoint parse_endpoint(std::string_view text, int default_port, std::string_view what) {
  Endpoint result{std::string(text), default_port};
  std::string_view port;
  bool has_port = false;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    QUENCH_CHECK_AS(ErrorCode::bad_config, end != std::string_view::npos, "{}: '{}' has no closing bracket", what,
                    text);
    result.host = text.substr(1, end - 1);
    const std::string_view rest = text.substr(end + 1);
    QUENCH_CHECK_AS(ErrorCode::bad_config, rest.empty() || rest.starts_with(':'),
                    "{}: '{}' is no host:port; write [address]:port", what, text);
    has_port = !rest.empty();
    if (has_port) port = rest.substr(1);
  } else if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, text.find(':', colon + 1) == std::string_view::npos,
                    "{}: '{}' is no host:port; an IPv6 address stands in brackets: [{}]:port", what, text, text);
    result.host = text.substr(0, colon);
    port = text.substr(colon + 1);
    has_port = true;
  }
  QUENCH_CHECK_AS(ErrorCode::bad_config, !result.host.empty(), "{}: '{}' names no host", what, text);
  if (has_port) {
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), result.port);
    QUENCH_CHECK_AS(
        ErrorCode::bad_config,
        error == std::errc() && end == port.data() + port.size() && result.port >= 0 && result.port <= 65535,
        "{}: port '{}' is no number from 0 to 65535", what, port);
  }
  return result;
}

Socket listen_on(const Endpoint& endpoint) {
  std::string reason;
  const Addresses addresses = resolve(endpoint, 0, reason);
  QUENCH_CHECK_AS(ErrorCode::bad_config, addresses != nullptr, "host '{}' is unknown: {}", endpoint.host, reason);
  const auto listen_at = [](const addrinfo& address) -> std::pair<Socket, int> {
    Socket socket = open_socket(address);
    if (!socket.is_open()) return {Socket(), errno};
    set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    if (::bind(socket.descriptor(), address.ai_addr, address.ai_addrlen) != 0) return {Socket(), errno};
    if (::listen(socket.descriptor(), SOMAXCONN) != 0) return {Socket(), errno};
    return {std::move(socket), 0};
  };
  int error = 0;
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    auto [socket, status] = listen_at(*address);
    if (status == 0) return std::move(socket);
    error = status;
    if (status == EADDRINUSE) break;
  }
  if (error == EADDRNOTAVAIL) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_port = htons(static_cast<std::uint16_t>(endpoint.port));
    addrinfo everywhere{};
    everywhere.ai_family = AF_INET;
    everywhere.ai_socktype = SOCK_STREAM;
    everywhere.ai_addr = reinterpret_cast<sockaddr*>(&any);
    everywhere.ai_addrlen = sizeof any;
    auto [socket, status] = listen_at(everywhere);
    if (status == 0) return std::move(socket);
    error = status;
  }
  const std::string owner = error == EADDRINUSE ? port_owner(endpoint.port) : "";
  const bool wrong_place = error == EADDRINUSE || error == EADDRNOTAVAIL || error == EACCES;
  QUENCH_FAIL(wrong_place ? ErrorCode::bad_config : ErrorCode::failed, "cannot listen on {}: {}{}{}",
              endpoint.to_string(), errno_text(error), owner.empty() ? "" : " by " + owner,
              error == EADDRINUSE ? "; choose another port, or 0 for a free one" : "");
}

int local_port(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  QUENCH_CHECK_AS(ErrorCode::failed,
                  ::getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), &length) == 0,
                  "port of a socket: {}", errno_text(errno));
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::string local_address(const Socket& socket) {
  return address_of(socket, &::getsockname);
}
std::string peer_address(const Socket& socket) {
  return address_of(socket, &::getpeername);
}

Socket connect_to(const Endpoint& endpoint, Deadline deadline) {
  std::string reason = "nothing was tried";
  auto pause = std::chrono::duration_cast<Clock::duration>(kFirstPause);
  while (true) {
    const Addresses addresses = resolve(endpoint, 0, reason);
    for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
      Socket socket = open_socket(*address);
      const bool exhausted = !socket.is_open() && (errno == EMFILE || errno == ENFILE);
      QUENCH_CHECK_AS(ErrorCode::failed, !exhausted,
                      "cannot connect to {}: {}; raise the limit of open files (ulimit -n)", endpoint.to_string(),
                      errno_text(errno));
      const int error = socket.is_open() ? try_connect(socket, *address, deadline) : errno;
      if (error == 0) {
        set_no_delay(socket);
        set_keep_alive(socket);
        return socket;
      }
      reason = errno_text(error);
    }
    if (Clock::now() + pause >= deadline)
      QUENCH_FAIL(addresses != nullptr ? ErrorCode::failed : ErrorCode::not_found, "cannot reach {}: {}",
                  endpoint.to_string(), reason);
    std::this_thread::sleep_for(pause);
    pause = std::min<Clock::duration>(pause * 2, kLongestPause);
  }
}

void write_all(const Socket& socket, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t written = ::send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (written > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      QUENCH_CHECK_AS(ErrorCode::failed, wait_ready(socket, POLLOUT, deadline), "the peer takes no bytes");
    } else if (errno != EINTR) {
      QUENCH_FAIL(ErrorCode::failed, "{}", errno_text(errno));
    }
  }
}

void read_all(const Socket& socket, char* bytes, std::size_t count, Deadline deadline) {
  while (count > 0) {
    const ssize_t got = ::recv(socket.descriptor(), bytes, count, 0);
    if (got > 0) {
      bytes += got;
      count -= static_cast<std::size_t>(got);
    } else if (got == 0) {
      QUENCH_FAIL(ErrorCode::failed, "the peer has closed the connection");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      QUENCH_CHECK_AS(ErrorCode::failed, wait_ready(socket, POLLIN, deadline), "no answer in time");
    } else if (errno != EINTR) {
      QUENCH_FAIL(ErrorCode::failed, "{}", errno_text(errno));
    }
  }
}

void set_no_delay(const Socket& socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
}
void set_keep_alive(const Socket& socket) {
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 20'000);  // for data in flight
}
void unset_keep_alive(const Socket& socket) {
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 0);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
}

void require_descriptors(int count, std::string_view what) {
  std::vector<Socket> tried;
  for (int i = 0; i < count; ++i) {
    tried.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (tried.back().is_open() || (errno != EMFILE && errno != ENFILE)) continue;
    const int error = errno;
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    QUENCH_FAIL(ErrorCode::failed,
                "{} needs {} further files and connections: {} (the limit is {}); raise it (ulimit -n)", what, count,
                errno_text(error), limit.rlim_cur);
  }
}

std::vector<std::string> addresses_of(const std::string& host) {
  std::string reason;
  std::vector<std::string> result;
  const Addresses addresses = resolve({host, 0}, 0, reason);
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next)
    result.push_back(numeric(address->ai_addr, address->ai_addrlen));
  return result;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> result;
  ifaddrs* own = nullptr;
  if (::getifaddrs(&own) != 0) return result;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> guard(own, &::freeifaddrs);
  for (const ifaddrs* entry = own; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    result.push_back(numeric(entry->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)));
  }
  return result;
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host.starts_with("127.") || host == "::1";
}

bool is_this_machine(const std::string& host) {
  if (host == host_name()) return true;
  const std::vector<std::string> own = own_addresses();
  for (const std::string& address : addresses_of(host))
    if (is_loopback(address) || std::find(own.begin(), own.end(), address) != own.end()) return true;
  return false;
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace quench::distributed
