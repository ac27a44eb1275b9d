#pragma once
// HTTP server whose connections have deadlines and a bounded number of threads.

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>

#include "apps/serve/http/connection_threads.h"

namespace quench::serve {

struct HttpLimits {
  std::size_t threads = 64;  // connections served at once
  std::chrono::milliseconds timeout{30'000};
  std::chrono::milliseconds keep_alive{60'000};  // between requests
  std::size_t requests_per_connection = 10'000;
};

class HttpServer final : public httplib::Server {
 public:
  // `refusal`: JSON body of status 503 for a connection without a thread.
  HttpServer(const HttpLimits& limits, std::string refusal);

  // Listens; port 0: a free one. The port, or -1 with errno.
  [[nodiscard]] int bind(const std::string& host, int port);
  // No further connections or requests; those being answered continue. listen_after_bind() returns at their end.
  void stop_accepting();
  // Connections end at once, whatever they are doing.
  void abort() noexcept { aborting_ = true; }
  [[nodiscard]] bool stopping() const noexcept { return stopping_; }

 private:
  bool process_and_close_socket(socket_t socket) override;
  void refuse(socket_t socket) const;
  void serve_connection(socket_t socket);

  HttpLimits limits_;
  std::string refusal_;
  std::atomic<ConnectionThreads*> threads_ = nullptr;  // while listening
  std::atomic<bool> stopping_ = false, aborting_ = false;
};

}  // namespace quench::serve
