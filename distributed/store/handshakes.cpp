#include "distributed/store/handshakes.h"

#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <thread>
#include <utility>

#include "core/system/check.h"
#include "core/system/file.h"

namespace quench::distributed {
namespace {

constexpr int kAcceptsPerTurn = 16;                            // before reads
constexpr auto kAcceptPause = std::chrono::milliseconds(100);  // without free descriptors
constexpr auto kFirstRetry = std::chrono::milliseconds(50);
constexpr auto kLongestRetry = std::chrono::seconds(2);
constexpr auto kHandshakeTime = std::chrono::seconds(2 * kHandshakeSeconds);  // one attempt, if the deadline allows

// Empty on success, else the reason for a retry. Throws on permanent errors.
std::string try_proof(const Socket& socket, const Endpoint& endpoint, const std::string& secret, std::uint32_t number,
                      Deadline deadline) {
  std::string greeting(kGreetingBytes, '\0'), client_nonce, server_nonce, answer(sizeof(Sha256Digest), '\0');
  try {
    read_all(socket, greeting.data(), kStoreMagic.size(), deadline);
    if (greeting.starts_with(kStoreMagic)) {
      read_all(socket, greeting.data() + kStoreMagic.size(), kNonceBytes, deadline);
      server_nonce = greeting.substr(kStoreMagic.size());
      write_all(socket, encode_proof(secret, server_nonce, number, client_nonce), deadline);
      read_all(socket, answer.data(), answer.size(), deadline);
    }
  } catch (const Error& error) {
    return error.what();
  }
  QUENCH_CHECK_AS(ErrorCode::failed, greeting.starts_with(kStoreMagic),
                  "what listens on {} is no store of quench, or another version's", endpoint.to_string());
  if (equal_digests(server_proof(secret, server_nonce, client_nonce), answer)) return {};
  const std::optional<Refusal> refusal = decode_refusal(answer);
  QUENCH_CHECK_AS(ErrorCode::bad_config, refusal.has_value(), "the store on {} does not know this job's token",
                  endpoint.to_string());
  if (*refusal == Refusal::full) return "it has no place for another connection";
  QUENCH_FAIL(ErrorCode::bad_config,
              "the store on {} belongs to another job or has another token (it says: another {}); give all nodes the "
              "same --rdzv-id and the same token",
              endpoint.to_string(), *refusal == Refusal::other_token ? "token" : "job");
}

}  // namespace

Socket connect_with_proof(const Endpoint& endpoint, const std::string& secret, std::uint32_t number,
                          Deadline deadline) {
  Clock::duration pause = kFirstRetry;
  for (int attempts = 1;; ++attempts) {
    Socket socket = connect_to(endpoint, deadline);
    const Deadline now = Clock::now();
    const Deadline answer_by =
        std::max(std::min(deadline, now + kHandshakeTime), now + std::chrono::seconds(kHandshakeSeconds));
    const std::string reason = try_proof(socket, endpoint, secret, number, answer_by);
    if (reason.empty()) return socket;
    // Jitter.
    const auto spread = pause * (64 + static_cast<std::uint8_t>(random_bytes(1)[0]) / 4) / 128;
    QUENCH_CHECK_AS(ErrorCode::failed, Clock::now() + spread < deadline,
                    "what listens on {} has not completed a handshake in {} attempt{}, or is no store of quench: {}",
                    endpoint.to_string(), attempts, attempts == 1 ? "" : "s", reason);
    std::this_thread::sleep_for(spread);
    pause = std::min<Clock::duration>(2 * pause, kLongestRetry);
  }
}

Handshakes::Handshakes(std::string secret, Limits limits, Closed closed)
    : secret_(std::move(secret)), limits_(limits), closed_(std::move(closed)) {
  // Other uses need file descriptors, too.
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    limits_.connections = static_cast<int>(
        std::min<rlim_t>(static_cast<rlim_t>(limits_.connections), std::max<rlim_t>(4, limit.rlim_cur / 4)));
}

int Handshakes::listening(const Socket& listener, Deadline now) const {
  return now < accept_again_ || is_full() ? -1 : listener.descriptor();
}

void Handshakes::accept_all(const Socket& listener) {
  for (int accepted = 0; accepted < kAcceptsPerTurn && !is_full(); ++accepted) {
    Socket socket(::accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) out_of_descriptors(errno);
      return;
    }
    set_no_delay(socket);
    set_keep_alive(socket);
    Stranger stranger;
    try {
      stranger.peer = peer_address(socket);
    } catch (const Error&) {  // already closed
      continue;
    }
    stranger.socket = std::move(socket);
    stranger.nonce = random_bytes(kNonceBytes);
    stranger.unsent = std::string(kStoreMagic) + stranger.nonce;
    stranger.came = Clock::now();
    send_unsent(strangers_.emplace_back(std::move(stranger)));
    make_place(Clock::now());
  }
}

void Handshakes::out_of_descriptors(int error) {
  accept_again_ = Clock::now() + kAcceptPause;
  closed_("", fmt::format("cannot take a connection: {}", errno_text(error)));
  if (strangers_.empty() || Clock::now() < next_to_go().came + limits_.least) return;
  end(next_to_go(), "it has proved nothing and there are no descriptors left");
  remove_ended();
}

Handshakes::Stranger& Handshakes::next_to_go() {
  std::map<std::string_view, int> counts;
  int most = 0;
  for (const Stranger& stranger : strangers_) most = std::max(most, ++counts[stranger.peer]);
  return *std::find_if(strangers_.begin(), strangers_.end(),
                       [&](const Stranger& stranger) { return counts[stranger.peer] == most; });
}

void Handshakes::make_place(Deadline now) {
  remove_ended();
  while (is_full()) {
    Stranger& oldest = next_to_go();
    // The newest connection waits; older ones of its address keep their slots for Limits::least.
    if (oldest.peer == strangers_.back().peer && now < oldest.came + limits_.least) return;
    end(oldest, "it has proved nothing and others wait");
    remove_ended();
  }
}

void Handshakes::add_descriptors(std::vector<pollfd>& entries) const {
  for (const Stranger& stranger : strangers_)
    entries.push_back({stranger.socket.descriptor(),
                       static_cast<short>(POLLIN | POLLRDHUP | (stranger.unsent.empty() ? 0 : POLLOUT)), 0});
}

void Handshakes::handle(const pollfd* entries) {
  for (Stranger& stranger : strangers_) {
    const pollfd& entry = *entries++;
    if ((entry.revents & POLLOUT) != 0) send_unsent(stranger);
    if (stranger.ended) continue;
    if ((entry.revents & POLLIN) != 0)
      receive(stranger);
    else if ((entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0)
      end(stranger, "");
  }
  remove_ended();
}

void Handshakes::receive(Stranger& stranger) {
  char buffer[kAnswerBytes];
  while (!stranger.ended && stranger.received.size() < kAnswerBytes) {  // later bytes belong to the listener
    const ssize_t got = ::recv(stranger.socket.descriptor(), buffer, kAnswerBytes - stranger.received.size(), 0);
    if (got > 0)
      stranger.received.append(buffer, static_cast<std::size_t>(got));
    else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return;
    else if (got == 0 || errno != EINTR)
      return end(stranger, "");
  }
  if (!stranger.ended) judge(stranger);
}

void Handshakes::judge(Stranger& stranger) {
  const std::optional<Refusal> refusal = check_proof(secret_, stranger.nonce, stranger.received);
  if (refusal) {
    if (*refusal == Refusal::other_token) other_tokens_ = {other_tokens_.count + 1, stranger.peer};
    stranger.unsent += encode_refusal(*refusal);
    send_unsent(stranger);
    return end(stranger, *refusal == Refusal::other_token ? "it knows the name of this job and has another token"
                                                          : "it does not know the token of this job");
  }
  const std::string_view client_nonce = std::string_view(stranger.received).substr(0, kClientNonceBytes);
  const Sha256Digest own = server_proof(secret_, stranger.nonce, client_nonce);
  Proved proved;
  proved.peer = stranger.peer;
  proved.number = number_of_proof(client_nonce);
  proved.answer = stranger.unsent;
  proved.answer.append(reinterpret_cast<const char*>(own.data()), own.size());
  proved.socket = std::move(stranger.socket);
  proved_.push_back(std::move(proved));
  stranger.ended = true;
}

void Handshakes::send_unsent(Stranger& stranger) {
  while (!stranger.ended && !stranger.unsent.empty()) {
    const ssize_t sent =
        ::send(stranger.socket.descriptor(), stranger.unsent.data(), stranger.unsent.size(), MSG_NOSIGNAL);
    if (sent > 0)
      stranger.unsent.erase(0, static_cast<std::size_t>(sent));
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      return;
    else if (errno != EINTR)
      return end(stranger, "");
  }
}

void Handshakes::end(Stranger& stranger, std::string_view reason) {
  if (stranger.ended) return;
  stranger.ended = true;
  // Unread bytes would turn the close into a reset, which may discard a refusal.
  char rest[4096];
  for (int i = 0; i < 16 && ::recv(stranger.socket.descriptor(), rest, sizeof rest, MSG_DONTWAIT) > 0;) ++i;
  stranger.socket.close();
  if (!reason.empty()) closed_(stranger.peer, reason);
}

void Handshakes::remove_ended() {
  strangers_.remove_if([](const Stranger& stranger) { return stranger.ended; });
}

void Handshakes::expire(Deadline now) {
  for (Stranger& stranger : strangers_)
    if (now >= stranger.came + limits_.most) end(stranger, "it has proved nothing in time");
  make_place(now);
}

Deadline Handshakes::next_deadline(Deadline latest) {
  if (Clock::now() < accept_again_) latest = std::min(latest, accept_again_);
  if (!strangers_.empty()) latest = std::min<Deadline>(latest, strangers_.front().came + limits_.most);
  if (is_full()) latest = std::min<Deadline>(latest, next_to_go().came + limits_.least);
  return latest;
}

std::vector<Handshakes::Proved> Handshakes::take_proved() {
  return std::exchange(proved_, {});
}

}  // namespace quench::distributed
