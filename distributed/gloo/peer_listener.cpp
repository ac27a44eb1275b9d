#include "distributed/gloo/peer_listener.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/log.h"

namespace quench::distributed {

PeerListener::PeerListener(Socket listener, std::string secret)
    : listener_(std::move(listener)),
      port_(local_port(listener_)),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      handshakes_(std::move(secret), {}, [](const std::string& peer, std::string_view reason) {
        QUENCH_LOG_DEBUG("connection from {} to this rank closed: {}", peer, reason);
      }) {
  QUENCH_CHECK_AS(ErrorCode::failed, stop_.is_open(), "eventfd: {}", errno_text(errno));
  thread_ = std::thread([this] { run(); });
}

PeerListener::~PeerListener() {
  ::eventfd_write(stop_.descriptor(), 1);
  thread_.join();
}

void PeerListener::run() {
  std::vector<pollfd> entries;
  while (true) {
    const Deadline now = Clock::now();
    handshakes_.expire(now);
    entries.assign({{stop_.descriptor(), POLLIN, 0}, {handshakes_.listening(listener_, now), POLLIN, 0}});
    handshakes_.add_descriptors(entries);
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(handshakes_.next_deadline(now + std::chrono::hours(1)) - now);
    if (::poll(entries.data(), entries.size(), static_cast<int>(std::max<std::int64_t>(0, left.count()))) < 0 &&
        errno != EINTR) {
      QUENCH_LOG_ERROR("connections of other ranks: poll: {}", errno_text(errno));
      return;
    }
    if (entries[0].revents != 0) return;
    handshakes_.handle(entries.data() + 2);
    if (entries[1].revents != 0) handshakes_.accept_all(listener_);
    for (Handshakes::Proved& proved : handshakes_.take_proved()) {
      try {
        write_all(proved.socket, proved.answer, Clock::now() + std::chrono::seconds(kHandshakeSeconds));
      } catch (const Error& error) {
        QUENCH_LOG_DEBUG("connection of rank {} lost: {}", proved.number, error.what());
        continue;
      }
      {
        const std::scoped_lock lock(mutex_);
        connections_[static_cast<int>(proved.number)] = std::move(proved.socket);
      }
      changed_.notify_all();
    }
  }
}

std::optional<Socket> PeerListener::wait(int rank, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, timeout, [&] { return connections_.contains(rank); })) return std::nullopt;
  return std::move(connections_.extract(rank).mapped());
}

}  // namespace quench::distributed
