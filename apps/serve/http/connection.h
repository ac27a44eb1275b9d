#pragma once
// Socket of an HTTP connection, with deadlines for what a client sends and takes.
//
// A request's head has `timeout`, and each body and response as much and a second more per kMinimumRate bytes: clients
// that hang, or send and read byte by byte, lose the connection. Used by one thread.

#include <httplib.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>

namespace quench::serve {

class Connection final : public httplib::Stream {
 public:
  static constexpr std::size_t kMostHeadBytes = std::size_t{64} << 10;  // request line and headers
  static constexpr double kMinimumRate = 64 << 10;                      // bytes a second

  // Does not own the socket. `abort`: once set, waiting ends and transfers fail; must outlive it.
  Connection(socket_t socket, std::chrono::milliseconds timeout, const std::atomic<bool>& abort);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // That of the calling thread; null: none.
  [[nodiscard]] static Connection* current() noexcept;

  // Waits for the first byte of a request; false after `timeout`, at the client's end, or when `leave` says so.
  [[nodiscard]] bool await_request(std::chrono::milliseconds timeout, const std::function<bool()>& leave);
  void begin_head();
  void begin_body(bool expected);
  void body_read() noexcept { body_pending_ = false; }
  // A body was announced, and not all of it read: no further request can follow.
  [[nodiscard]] bool body_pending() const noexcept { return body_pending_; }
  // The client has closed its side.
  [[nodiscard]] bool client_gone() const;
  // Since begin_head().
  [[nodiscard]] double seconds() const;
  // Sends the end and drops what still arrives, so that the client reads the response and no reset.
  void finish();

  bool is_readable() const override;
  bool is_writable() const override;
  ssize_t read(char* data, std::size_t size) override;
  using Stream::write;
  ssize_t write(const char* data, std::size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  using Clock = std::chrono::steady_clock;

  // Until it is readable or writable (POLLIN, POLLOUT).
  [[nodiscard]] bool wait(short events, Clock::time_point deadline) const;

  socket_t socket_;
  std::chrono::milliseconds timeout_;
  const std::atomic<bool>& abort_;
  Clock::time_point begin_{}, phase_{};  // starts of the request, and of its head or body
  std::size_t received_ = 0;             // in this phase
  bool in_head_ = true;
  bool body_pending_ = false;
  std::array<char, 16384> buffer_{};
  std::size_t first_ = 0, last_ = 0;  // unread bytes of the buffer
  Connection* previous_;
};

}  // namespace quench::serve
