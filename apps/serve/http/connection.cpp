#include "apps/serve/http/connection.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace quench::serve {
namespace {

thread_local Connection* current_connection = nullptr;

std::chrono::milliseconds transfer_time(std::size_t bytes) {
  return std::chrono::milliseconds(
      static_cast<std::int64_t>(1000.0 * static_cast<double>(bytes) / Connection::kMinimumRate));
}

void read_address(const sockaddr_storage& address, socklen_t length, std::string& ip, int& port) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> service{};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host.data(), host.size(), service.data(),
                    service.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return;
  ip = host.data();
  port = std::atoi(service.data());
}

}  // namespace

Connection::Connection(socket_t socket, std::chrono::milliseconds timeout, const std::atomic<bool>& abort)
    : socket_(socket), timeout_(timeout), abort_(abort), previous_(current_connection) {
  current_connection = this;
}

Connection::~Connection() {
  current_connection = previous_;
}

Connection* Connection::current() noexcept {
  return current_connection;
}

bool Connection::await_request(std::chrono::milliseconds timeout, const std::function<bool()>& leave) {
  constexpr std::chrono::milliseconds kSlice{50};
  const Clock::time_point end = Clock::now() + timeout;
  while (first_ == last_) {
    if (leave()) return false;
    if (wait(POLLIN, std::min(end, Clock::now() + kSlice))) return !client_gone();
    if (Clock::now() >= end) return false;
  }
  return true;
}

void Connection::begin_head() {
  begin_ = phase_ = Clock::now();
  received_ = 0;
  in_head_ = true;
  body_pending_ = false;
}

void Connection::begin_body(bool expected) {
  phase_ = Clock::now();
  received_ = 0;
  in_head_ = false;
  body_pending_ = expected;
}

bool Connection::client_gone() const {
  char byte = 0;
  const ssize_t count = ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

double Connection::seconds() const {
  return std::chrono::duration<double>(Clock::now() - begin_).count();
}

void Connection::finish() {
  constexpr std::size_t kMostDropped = std::size_t{16} << 20;
  ::shutdown(socket_, SHUT_WR);
  if (!body_pending_) return;
  const Clock::time_point end = Clock::now() + std::min(timeout_, std::chrono::milliseconds(2000));
  for (std::size_t dropped = 0; dropped < kMostDropped && wait(POLLIN, end);) {
    const ssize_t count = ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (count <= 0) break;
    dropped += static_cast<std::size_t>(count);
  }
}

bool Connection::wait(short events, Clock::time_point deadline) const {
  constexpr std::int64_t kSliceMs = 100;  // until abort_ is looked at
  while (!abort_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd waiting{socket_, events, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, kSliceMs)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (ready == 0 && Clock::now() >= deadline) return false;
  }
  return false;
}

bool Connection::is_readable() const {
  return first_ < last_ || wait(POLLIN, Clock::now());
}

bool Connection::is_writable() const {
  return wait(POLLOUT, Clock::now() + timeout_) && !client_gone();
}

ssize_t Connection::read(char* data, std::size_t size) {
  if (in_head_ && received_ >= kMostHeadBytes) return -1;
  if (first_ == last_) {
    if (!wait(POLLIN, phase_ + timeout_ + (in_head_ ? std::chrono::milliseconds(0) : transfer_time(received_))))
      return -1;
    ssize_t count = 0;
    do {
      count = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
    } while (count < 0 && errno == EINTR);
    if (count <= 0) return count;
    first_ = 0;
    last_ = static_cast<std::size_t>(count);
  }
  const std::size_t count = std::min(size, last_ - first_);
  std::memcpy(data, buffer_.data() + first_, count);
  first_ += count;
  received_ += count;
  return static_cast<ssize_t>(count);
}

ssize_t Connection::write(const char* data, std::size_t size) {
  const Clock::time_point deadline = Clock::now() + timeout_ + transfer_time(size);
  std::size_t sent = 0;
  while (sent < size) {
    const ssize_t count = ::send(socket_, data + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) {
      sent += static_cast<std::size_t>(count);
    } else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!wait(POLLOUT, deadline)) return -1;
    } else if (count == 0 || errno != EINTR) {
      return -1;
    }
    if (Clock::now() >= deadline && sent < size) return -1;
  }
  return static_cast<ssize_t>(sent);
}

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (::getpeername(socket_, reinterpret_cast<sockaddr*>(&address), &length) == 0)
    read_address(address, length, ip, port);
}

void Connection::get_local_ip_and_port(std::string& ip, int& port) const {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length) == 0)
    read_address(address, length, ip, port);
}

}  // namespace quench::serve
