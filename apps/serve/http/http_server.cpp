#include "apps/serve/http/http_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "apps/serve/http/connection.h"
#include "core/system/check.h"

namespace quench::serve {

HttpServer::HttpServer(const HttpLimits& limits, std::string refusal) : limits_(limits) {
  refusal_ = fmt::format(
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {}\r\nRetry-After: 1\r\n"
      "Connection: close\r\n\r\n{}",
      refusal.size(), refusal);
  new_task_queue = [this] {
    auto* threads = new ConnectionThreads(limits_.threads);  // owned by the base
    threads_ = threads;
    return threads;
  };
  // Without SO_REUSEPORT, with which two servers could share a port.
  set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  set_tcp_nodelay(true);
  set_post_routing_handler([](const httplib::Request&, httplib::Response& response) {
    if (const Connection* connection = Connection::current(); connection != nullptr && connection->body_pending())
      response.set_header("Connection", "close");
  });
}

int HttpServer::bind(const std::string& host, int port) {
  errno = 0;
  const int bound = port == 0 ? bind_to_any_port(host) : bind_to_port(host, port) ? port : -1;
  if (bound > 0) ::listen(svr_sock_, SOMAXCONN);  // the library's queue holds five connections
  return bound;
}

void HttpServer::stop_accepting() {
  stopping_ = true;
  if (is_running() && svr_sock_ != INVALID_SOCKET) stop();
}

bool HttpServer::process_and_close_socket(socket_t socket) {
  if (ConnectionThreads::refusing())
    refuse(socket);
  else
    serve_connection(socket);
  ::close(socket);
  return true;
}

// By the thread that accepts: without waiting.
void HttpServer::refuse(socket_t socket) const {
  (void)::send(socket, refusal_.data(), refusal_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(socket, SHUT_WR);
  // Unread bytes would turn the end into a reset, which overtakes the response.
  std::array<char, 65536> dropped{};
  (void)::recv(socket, dropped.data(), dropped.size(), MSG_DONTWAIT);
}

void HttpServer::serve_connection(socket_t socket) {
  Connection connection(socket, limits_.timeout, aborting_);
  ConnectionThreads& threads = *threads_.load();
  // A new connection may take its time, unlike one that waits for a further request.
  constexpr double kPatience = 1;
  connection.begin_head();
  bool fresh = true;
  const auto leave = [&] { return stopping_ || ((!fresh || connection.seconds() > kPatience) && threads.pressed()); };
  for (std::size_t left = limits_.requests_per_connection; left > 0; --left) {
    {
      const ConnectionThreads::Idle idle(threads);
      if (!connection.await_request(limits_.keep_alive, leave)) break;
    }
    fresh = false;
    connection.begin_head();
    bool closed = false, parsed = false;
    const bool last = left == 1 || stopping_;
    const bool answered = process_request(connection, last, closed, [&](httplib::Request& request) {
      parsed = true;
      request.ranges.clear();
      const std::string length = request.get_header_value("Content-Length");
      connection.begin_body((!length.empty() && length != "0") || request.has_header("Transfer-Encoding"));
    });
    if (!answered || closed || !parsed || connection.body_pending()) break;
  }
  connection.finish();
}

}  // namespace quench::serve
