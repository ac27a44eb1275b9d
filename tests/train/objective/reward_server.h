#pragma once
// HTTP server of one connection at a time on loopback, for rewards.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "core/system/check.h"

namespace quench::testing {

class RewardServer {
 public:
  struct Answer {
    int status = 200;
    std::string body;
    bool is_silent = false;  // keeps the connection without an answer
  };
  // `answer`: by the number of the request, from 0, and its body.
  explicit RewardServer(std::function<Answer(int number, const std::string& body)> answer)
      : answer_(std::move(answer)), socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    QUENCH_CHECK(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size) == 0 && ::listen(socket_, 8) == 0 &&
                     ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0,
                 "no socket");
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~RewardServer() {
    ends_ = true;
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }
  RewardServer(const RewardServer&) = delete;
  RewardServer& operator=(const RewardServer&) = delete;
  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/rewards"; }
  [[nodiscard]] int requests() const { return requests_; }

 private:
  void serve() {
    while (!ends_) {
      const int peer = ::accept(socket_, nullptr, nullptr);
      if (peer < 0) continue;
      std::string text;
      char buffer[4096];
      std::size_t wanted = std::string::npos, head = 0;
      while (text.size() < wanted) {
        const ssize_t count = ::read(peer, buffer, sizeof(buffer));
        if (count <= 0) break;
        text.append(buffer, static_cast<std::size_t>(count));
        head = text.find("\r\n\r\n");
        const std::size_t length = text.find("Content-Length: ");
        if (wanted == std::string::npos && head != std::string::npos && length != std::string::npos)
          wanted = head + 4 + std::stoul(text.substr(length + 16));
      }
      const Answer answer = answer_(requests_++, wanted == std::string::npos ? "" : text.substr(head + 4));
      if (answer.is_silent) {
        while (!ends_ && ::recv(peer, buffer, 1, MSG_DONTWAIT) != 0) ::usleep(10000);
      } else {
        const std::string reply = "HTTP/1.1 " + std::to_string(answer.status) +
                                  " x\r\nConnection: close\r\nContent-Length: " + std::to_string(answer.body.size()) +
                                  "\r\n\r\n" + answer.body;
        (void)::send(peer, reply.data(), reply.size(), MSG_NOSIGNAL);
      }
      ::close(peer);
    }
  }

  std::function<Answer(int, const std::string&)> answer_;
  int socket_;
  int port_ = 0;
  std::atomic<bool> ends_ = false;
  std::atomic<int> requests_ = 0;
  std::thread thread_;
};

}  // namespace quench::testing
