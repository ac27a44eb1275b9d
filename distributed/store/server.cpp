#include "distributed/store/server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <list>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "distributed/store/protocol.h"

namespace quench::distributed {
namespace {

constexpr std::size_t kMaxUnsent = 4 * (kMaxValueBytes + 1024);  // replies not read by a peer
constexpr auto kWarningPause = std::chrono::seconds(1);          // rate limit

struct Connection {
  Socket socket;
  std::string peer;
  bool ended = false;
  std::string received;
  std::string unsent;
  // Waits for its key; later requests stay in `received`.
  bool waits = false;
  std::string awaited;
  Deadline wait_ends;
  std::string will_key;
  std::string will_value;
};

std::int64_t number_of(std::string_view text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

class StoreServer::Loop {
 public:
  Loop(Socket listener, std::string secret, int max_connections, Handshakes::Limits limits)
      : listener_(std::move(listener)),
        handshakes_(std::move(secret), limits, [this](const std::string& peer, auto reason) { warn(peer, reason); }),
        max_connections_(max_connections),
        port_(local_port(listener_)),
        stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    QUENCH_CHECK_AS(ErrorCode::failed, stop_.is_open(), "eventfd: {}", errno_text(errno));
    thread_ = std::thread([this] { run(); });
  }
  ~Loop() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(stop_.descriptor(), &one, sizeof one);
    thread_.join();
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  [[nodiscard]] int port() const noexcept { return port_; }

 private:
  void run();
  void admit(Handshakes::Proved proved);
  void receive(Connection& connection);
  void read_messages(Connection& connection);
  void serve(Connection& connection, const StoreRequest& request);
  void answer(Connection& connection, StoreStatus status, std::string_view value);
  void send_unsent(Connection& connection);
  void end(Connection& connection, std::string_view reason);
  void warn(const std::string& peer, std::string_view reason);
  bool put(const std::string& key, std::string_view value);
  void wake_waiters(const std::string& key);
  void expire(Deadline now);
  [[nodiscard]] int milliseconds_to_next_deadline(Deadline now);

  Socket listener_;
  Handshakes handshakes_;
  int max_connections_;
  int port_;
  Socket stop_;
  Deadline warn_again_{};
  int unsaid_ = 0;  // closed since the last warning
  std::int64_t other_tokens_ = 0;
  std::list<Connection> connections_;
  std::map<std::string, std::string> values_;
  std::size_t stored_bytes_ = 0;
  std::thread thread_;
};

void StoreServer::Loop::run() {
  std::vector<pollfd> entries;
  std::vector<Connection*> owners;
  while (true) {
    const Deadline now = Clock::now();
    expire(now);
    connections_.remove_if([](const Connection& connection) { return connection.ended; });
    entries.assign({{stop_.descriptor(), POLLIN, 0}, {handshakes_.listening(listener_, now), POLLIN, 0}});
    handshakes_.add_descriptors(entries);
    const std::size_t first = entries.size();
    owners.clear();
    for (Connection& connection : connections_) {
      // A connection that waits for a key is not read, only watched for a disconnect.
      const short events =
          static_cast<short>((connection.waits ? 0 : POLLIN) | POLLRDHUP | (connection.unsent.empty() ? 0 : POLLOUT));
      entries.push_back({connection.socket.descriptor(), events, 0});
      owners.push_back(&connection);
    }
    if (::poll(entries.data(), entries.size(), milliseconds_to_next_deadline(now)) < 0 && errno != EINTR) {
      QUENCH_LOG_ERROR("store: poll: {}", errno_text(errno));
      return;
    }
    if (entries[0].revents != 0) return;
    for (std::size_t i = 0; i < owners.size(); ++i) {
      Connection& connection = *owners[i];
      const short events = entries[first + i].revents;
      if (connection.ended || events == 0) continue;
      if ((events & POLLOUT) != 0) send_unsent(connection);
      if ((events & POLLIN) != 0 && !connection.waits)
        receive(connection);
      else if ((events & (POLLRDHUP | POLLHUP | POLLERR)) != 0)
        end(connection, "");
    }
    handshakes_.handle(entries.data() + 2);
    if (entries[1].revents != 0) handshakes_.accept_all(listener_);
    for (Handshakes::Proved& proved : handshakes_.take_proved()) admit(std::move(proved));
    if (const auto& [count, latest] = handshakes_.other_tokens(); count != other_tokens_) {
      other_tokens_ = count;
      put(kOtherTokensKey, fmt::format("{} with this job's name and another token: refused, the latest from {}",
                                       count == 1 ? "1 connection" : fmt::format("{} connections", count), latest));
    }
  }
}

void StoreServer::Loop::admit(Handshakes::Proved proved) {
  const auto members = std::count_if(connections_.begin(), connections_.end(),
                                     [](const Connection& connection) { return !connection.ended; });
  const bool full = members >= max_connections_;
  Connection& connection = connections_.emplace_back();
  connection.socket = std::move(proved.socket);
  connection.peer = std::move(proved.peer);
  connection.unsent = full ? encode_refusal(Refusal::full) : std::move(proved.answer);
  send_unsent(connection);
  if (full) end(connection, fmt::format("there are {} connections already", max_connections_));
}

void StoreServer::Loop::receive(Connection& connection) {
  constexpr std::size_t limit = kFrameHead + kRequestHead + kMaxKeyBytes + kMaxValueBytes;  // one frame
  char buffer[16384];
  while (!connection.ended && connection.received.size() < limit) {
    const std::size_t wanted = std::min(sizeof buffer, limit - connection.received.size());
    const ssize_t got = ::recv(connection.socket.descriptor(), buffer, wanted, 0);
    if (got > 0) {
      connection.received.append(buffer, static_cast<std::size_t>(got));
      read_messages(connection);
      if (connection.waits || static_cast<std::size_t>(got) < wanted) return;
    } else if (got == 0) {
      return end(connection, "");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR) {
      return end(connection, "");
    }
  }
}

void StoreServer::Loop::read_messages(Connection& connection) {
  while (!connection.ended && !connection.waits && connection.received.size() >= kFrameHead) {
    const std::size_t length = read_u32(connection.received.data());
    if (length > kRequestHead + kMaxKeyBytes + kMaxValueBytes) return end(connection, "it sent too long a request");
    if (connection.received.size() < kFrameHead + length) return;
    StoreRequest request;
    if (!decode_request(std::string_view(connection.received).substr(kFrameHead, length), request))
      return end(connection, "it sent what is no request");
    connection.received.erase(0, kFrameHead + length);
    serve(connection, request);
  }
}

void StoreServer::Loop::serve(Connection& connection, const StoreRequest& request) {
  const auto found = values_.find(request.key);
  switch (request.op) {
    case StoreOp::get:
      if (found != values_.end()) return answer(connection, StoreStatus::ok, found->second);
      if (request.timeout_ms == 0) return answer(connection, StoreStatus::timed_out, {});
      connection.waits = true;
      connection.awaited = request.key;
      connection.wait_ends = Clock::now() + std::chrono::milliseconds(request.timeout_ms);
      return;
    case StoreOp::set_if_absent:
      if (found != values_.end()) return answer(connection, StoreStatus::ok, found->second);
      [[fallthrough]];
    case StoreOp::set:
      if (!put(request.key, request.value)) return answer(connection, StoreStatus::full, "the store is full");
      return answer(connection, StoreStatus::ok,
                    request.op == StoreOp::set ? std::string_view() : std::string_view(request.value));
    case StoreOp::add: {
      const std::int64_t before = found == values_.end() ? 0 : number_of(found->second);
      const std::string sum = std::to_string(static_cast<std::int64_t>(
          static_cast<std::uint64_t>(before) + static_cast<std::uint64_t>(number_of(request.value))));
      if (!put(request.key, sum)) return answer(connection, StoreStatus::full, "the store is full");
      return answer(connection, StoreStatus::ok, sum);
    }
    case StoreOp::set_last_will:
      connection.will_key = request.value.empty() ? std::string() : request.key;
      connection.will_value = request.value;
      return answer(connection, StoreStatus::ok, {});
  }
}

void StoreServer::Loop::answer(Connection& connection, StoreStatus status, std::string_view value) {
  connection.unsent += encode_answer(status, value);
  if (connection.unsent.size() > kMaxUnsent) return end(connection, "it does not read its answers");
  send_unsent(connection);
}

void StoreServer::Loop::send_unsent(Connection& connection) {
  while (!connection.ended && !connection.unsent.empty()) {
    const ssize_t sent =
        ::send(connection.socket.descriptor(), connection.unsent.data(), connection.unsent.size(), MSG_NOSIGNAL);
    if (sent > 0)
      connection.unsent.erase(0, static_cast<std::size_t>(sent));
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      return;
    else if (errno != EINTR)
      return end(connection, "");
  }
}

void StoreServer::Loop::end(Connection& connection, std::string_view reason) {
  if (connection.ended) return;
  if (!reason.empty()) warn(connection.peer, reason);
  connection.ended = true;
  connection.socket.close();
  if (!connection.will_key.empty() && values_.find(connection.will_key) == values_.end())
    put(connection.will_key, connection.will_value);
}

void StoreServer::Loop::warn(const std::string& peer, std::string_view reason) {
  const Deadline now = Clock::now();
  if (now < warn_again_) {
    ++unsaid_;
    return;
  }
  warn_again_ = now + kWarningPause;
  const std::string before = unsaid_ > 0 ? fmt::format(" ({} others before it)", std::exchange(unsaid_, 0)) : "";
  QUENCH_LOG_WARN("store: {}{}{}", peer.empty() ? "" : fmt::format("connection from {} closed: ", peer), reason,
                  before);
}

bool StoreServer::Loop::put(const std::string& key, std::string_view value) {
  const auto found = values_.find(key);
  const std::size_t before = found == values_.end() ? 0 : key.size() + found->second.size();
  const std::size_t after = stored_bytes_ - before + key.size() + value.size();
  if (after > kMaxStoredBytes) return false;
  stored_bytes_ = after;
  values_[key] = value;
  wake_waiters(key);
  return true;
}

void StoreServer::Loop::wake_waiters(const std::string& key) {
  for (Connection& connection : connections_) {
    if (connection.ended || !connection.waits || connection.awaited != key) continue;
    connection.waits = false;
    answer(connection, StoreStatus::ok, values_[key]);
    if (!connection.ended) read_messages(connection);
  }
}

void StoreServer::Loop::expire(Deadline now) {
  handshakes_.expire(now);
  for (Connection& connection : connections_) {
    if (connection.ended || !connection.waits || now < connection.wait_ends) continue;
    connection.waits = false;
    answer(connection, StoreStatus::timed_out, {});
    if (!connection.ended) read_messages(connection);
  }
}

int StoreServer::Loop::milliseconds_to_next_deadline(Deadline now) {
  Deadline next = handshakes_.next_deadline(now + std::chrono::hours(1));
  for (const Connection& connection : connections_)
    if (!connection.ended && connection.waits) next = std::min(next, connection.wait_ends);
  return std::max(0, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(next - now).count()));
}

StoreServer::StoreServer(Socket listener, std::string secret, int max_connections, Handshakes::Limits limits)
    : loop_(std::make_unique<Loop>(std::move(listener), std::move(secret), max_connections, limits)) {}

StoreServer::~StoreServer() = default;

int StoreServer::port() const noexcept {
  return loop_->port();
}

}  // namespace quench::distributed
